"""`heapq`: all of it."""

from typing import Any


def heappush(heap: list[Any], item: Any) -> None:
    heap.append(item)
    _down(heap, 0, len(heap) - 1)


def heappop(heap: list[Any]) -> Any:
    last = heap.pop()
    if not heap:
        return last
    found = heap[0]
    heap[0] = last
    _up(heap, 0)
    return found


def heapreplace(heap: list[Any], item: Any) -> Any:
    found = heap[0]
    heap[0] = item
    _up(heap, 0)
    return found


def heappushpop(heap: list[Any], item: Any) -> Any:
    if heap and heap[0] < item:
        found = heap[0]
        heap[0] = item
        _up(heap, 0)
        return found
    return item


def heapify(x: list[Any]) -> None:
    for at in reversed(range(len(x) // 2)):
        _up(x, at)


def _down(heap: list[Any], start: int, at: int) -> None:
    item = heap[at]
    while at > start:
        parent = (at - 1) >> 1
        if not item < heap[parent]:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = item


def _up(heap: list[Any], at: int) -> None:
    end, start, item = len(heap), at, heap[at]
    child = 2 * at + 1
    while child < end:
        right = child + 1
        if right < end and not heap[child] < heap[right]:
            child = right
        heap[at] = heap[child]
        at = child
        child = 2 * at + 1
    heap[at] = item
    _down(heap, start, at)


def nsmallest(n: int, iterable: Any, key: Any = None) -> list[Any]:
    return sorted(iterable, key=key)[: max(n, 0)]


def nlargest(n: int, iterable: Any, key: Any = None) -> list[Any]:
    return sorted(iterable, key=key, reverse=True)[: max(n, 0)]


def merge(*iterables: Any, key: Any = None, reverse: bool = False) -> list[Any]:
    items: list[Any] = []
    for one in iterables:
        items.extend(one)
    return sorted(items, key=key, reverse=reverse)
