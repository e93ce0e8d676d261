"""Models of a household: lists, groceries, food, recipes, places."""

from __future__ import annotations

from django.db import models

from capabilities.models.numbered import NamedRow, NumberedRow


class NamedList(NamedRow):
    """A list with a name: packing, books to read."""

    class Meta(NamedRow.Meta):
        db_table = "capabilities_namedlist"


class ListItem(NumberedRow):
    """A line of a list."""

    list = models.ForeignKey(NamedList, on_delete=models.CASCADE, related_name="items")
    text = models.CharField(max_length=500)
    checked_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(NumberedRow.Meta):
        db_table = "capabilities_listitem"

    def __str__(self) -> str:
        return self.text

    @property
    def is_checked(self) -> bool:
        return self.checked_at is not None


class GroceryItem(NumberedRow):
    """Something to buy. What is still to buy stands on the list once for each name and unit."""

    name = models.CharField(max_length=200)
    #: The name as it is compared.
    key = models.CharField(max_length=400, editable=False)
    quantity = models.DecimalField(max_digits=12, decimal_places=3)
    unit = models.CharField(max_length=20, blank=True)
    bought_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(NumberedRow.Meta):
        db_table = "capabilities_groceryitem"
        constraints = (
            *NumberedRow.Meta.constraints,
            models.UniqueConstraint(
                fields=["membership", "key", "unit"],
                condition=models.Q(bought_at=None),
                name="grocery_to_buy_once",
            ),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def is_bought(self) -> bool:
        return self.bought_at is not None


class FoodEntry(NumberedRow):
    """Something eaten on a day."""

    date = models.DateField()
    food = models.CharField(max_length=300)
    meal = models.CharField(max_length=20, blank=True)
    kcal = models.PositiveIntegerField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(NumberedRow.Meta):
        db_table = "capabilities_foodentry"

    def __str__(self) -> str:
        return self.food


class Recipe(NamedRow):
    """Recipe of a dish. Ingredients are lines."""

    ingredients = models.TextField(blank=True)
    steps = models.TextField(blank=True)
    servings = models.PositiveIntegerField(null=True, blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta(NamedRow.Meta):
        db_table = "capabilities_recipe"


class Place(NamedRow):
    """Somewhere on earth, in degrees."""

    latitude = models.FloatField()
    longitude = models.FloatField()
    address = models.CharField(max_length=500, blank=True)

    class Meta(NamedRow.Meta):
        db_table = "capabilities_place"
