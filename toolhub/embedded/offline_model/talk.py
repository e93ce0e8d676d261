"""Tables of answers without a tool: small talk in four languages, what cannot be done and why."""

from __future__ import annotations

import re

from capabilities.choosing.routing.words import ENGLISH, STOP_WORDS_OF, language_of, words_of

_HELLO = r"(?:hi+|hello|hey|howdy|greetings|good (?:morning|afternoon|evening|day))(?: there| all| everyone| again)?"
_WHO = r"(?:who|what) are you|are you (?:an? )?(?:ai|llm|bot|robot|human|real)(?: person)?|what(?: is|'s) your name"
_HALLO = r"(?:hallo|servus|moin|guten (?:morgen|tag|abend)|grüß (?:gott|dich))(?: zusammen)?"
_BONJOUR = r"(?:bonjour|bonsoir|salut|coucou)(?: à tous)?"
_HOLA = r"(?:hola|buenas(?: tardes| noches)?|buenos días|buenos dias)(?: a todos)?"
#: Small talk. The whole message has to be one of these, in lower case and without stops; the first that fits counts.
SMALL_TALK = (
    (_HELLO, "Hello! What can I do for you?"),
    (
        rf"(?:{_HELLO} )?how (?:are you|is it going|do you do)(?: doing)?(?: today)?",
        "I am ready to work, thank you. What can I do for you?",
    ),
    (
        (
            r"(?:ok |great |perfect )?(?:thanks|thank you|thx|cheers|many thanks)(?: a lot| so much| very much)?"
            r"(?: (?:for (?:your|the) help|(?:that(?: is|'s|s)|that was) all))?"
        ),
        "You are welcome.",
    ),
    (r"good ?night|(?:good ?)?bye(?: bye)?|see you(?: later| soon| tomorrow)?|have a (?:nice|good) day", "Goodbye!"),
    (_WHO, "I am the offline model: I match the words of a message with the tools at hand."),
    (
        (
            r"(?:(?:that|this) is |that's |you are |you're )?(?:very |so )?(?:great|nice|cool|good|perfect|"
            r"well done|awesome|"
            r"helpful|funny|smart)(?: job| work)?"
        ),
        "Good. What is next?",
    ),
    (r"(?:i'm |i am )?sorry|my (?:bad|mistake)|oops", "No harm done. What is next?"),
    (r"(?:nice|pleased|good) to meet you(?: too)?", "Hello! What can I do for you?"),
    (r"ok(?:ay)?|yes|no|sure|fine|alright|i see|got it|never ?mind|forget it", "All right."),
    # German
    (_HALLO, "Hallo! Was kann ich tun?"),
    (rf"(?:{_HALLO} )?wie geht(?: es|'s|s)?(?: dir| ihnen)?(?: heute)?", "Ich bin bereit, danke. Was kann ich tun?"),
    (
        r"(?:vielen |besten |herzlichen |tausend )?dank(?:e)?(?: dir)?(?: schön| sehr| vielmals)?|dankeschön",
        "Gern geschehen.",
    ),
    (r"tschüss|tschüß|auf wiedersehen|gute nacht|bis (?:bald|morgen|später|dann)|ciao", "Auf Wiedersehen!"),
    (
        r"(?:wer|was) bist du|wie heißt du|bist du (?:ein(?:e)? )?(?:ki|mensch|roboter|bot)",
        "Ich bin das Offline-Modell.",
    ),
    (r"(?:das ist )?(?:super|toll|prima|klasse|sehr gut|gut gemacht)", "Gut. Was kommt als Nächstes?"),
    # French
    (_BONJOUR, "Bonjour ! Que puis-je faire ?"),
    (
        rf"(?:{_BONJOUR} )?(?:comment (?:ça va|vas tu|allez vous)|ça va(?: bien)?)",
        "Je suis prêt, merci. Que puis-je faire ?",
    ),
    (r"merci(?: beaucoup| bien| à toi| à vous)?", "De rien."),
    (r"au revoir|bonne (?:nuit|journée|soirée)|à (?:bientôt|demain|plus(?: tard)?)", "Au revoir !"),
    (r"qui (?:es tu|êtes vous)|tu es qui|comment (?:tu t'appelles|t'appelles tu)", "Je suis le modèle hors ligne."),
    (r"(?:c'est )?(?:super|génial|parfait|très bien|bravo)", "Bien. Et ensuite ?"),
    # Spanish
    (_HOLA, "¡Hola! ¿Qué puedo hacer?"),
    (
        rf"(?:{_HOLA} )?(?:cómo|como|qué|que) (?:estás|estas|está|tal)(?: hoy)?",
        "Listo para trabajar, gracias. ¿Qué puedo hacer?",
    ),
    (r"(?:muchas |mil )?gracias(?: por (?:todo|tu ayuda))?", "De nada."),
    (r"adiós|adios|hasta (?:luego|mañana|pronto)|buenas noches", "¡Adiós!"),
    (r"quién eres|quien eres|cómo te llamas|como te llamas", "Soy el modelo sin conexión."),
    (r"(?:está |es )?(?:genial|perfecto|muy bien|estupendo)", "Bien. ¿Qué sigue?"),
)
_NO_MATCH = "I match the words of a message with tools, and none fits well enough."
_CONNECT = "connect a language model on the page Providers"
#: Why a message is not served, by what it asks for.
CANNOT_WRITE = (
    f"I cannot write, explain or translate: this is the small offline model. {_NO_MATCH} For that, {_CONNECT}."
)
CANNOT_KNOW = (
    f"I do not know: this is the small offline model, which knows what tools return and nothing else. {_NO_MATCH} For "
    f"that, {_CONNECT}, or give this agent a tool that looks it up."
)
CANNOT_DO = f"{_NO_MATCH} So I cannot do that here. I could:"
LEFT_ALONE = "All right: I leave it as it is."
CANNOT_ALL = "I take nothing away all at once, and changed nothing. Name one thing, by its words or its number."
#: A message in another language that is no small talk.
ENGLISH_ONLY = {
    "german": "Das kann ich nicht: Das kleine Offline-Modell liest Aufträge nur auf Englisch, etwa “Add a "
    "task: buy milk”. "
    "Verbinden Sie auf der Seite Providers ein Sprachmodell.",
    "french": "Je ne peux pas : le petit modèle hors ligne ne lit que l'anglais, par exemple “Add a task: buy milk”. "
    "Connectez un modèle de langue à la page Providers.",
    "spanish": "No puedo: el pequeño modelo sin conexión solo lee inglés, por ejemplo “Add a task: buy milk”. "
    "Conecte un modelo de lenguaje en la página Providers.",
}
_WRITING = re.compile(
    r"^(?:please )?(?:(?:can|could|would) you )?(?:write|compose|translate|summari[sz]e|explain|paraphrase|"
    r"rewrite|proofread|"
    r"draft|sing|tell me (?:an?|another|some|about)|make up|imagine|invent)\b|\b(?:poem|haiku|limerick|joke|"
    r"story|essay|"
    r"lyrics|riddle)s?\b",
    re.IGNORECASE,
)
_KNOWING = re.compile(
    r"^(?:who|whom|whose|what|which|when|where|why|how|is|are|was|were|does|did|do you (?:know|think|like)|"
    r"will|should)\b",
    re.IGNORECASE,
)
_NEGATED = re.compile(r"\W*(?:please )?(?:do not|don['’]?t|never)\b(?! (?:let me )?forget| mind)", re.IGNORECASE)
_TAKES_ALL = re.compile(
    r"^\W*(?:please |can you |could you |just |now )*(?:delete|remove|erase|wipe|clear|destroy|purge|cancel|"
    r"forget|drop|"
    r"kill|empty|reset|get rid of|throw away|overwrite|trash)\b.*\b(?:all|every|everything|everyone|"
    r"anything|whole|entire)\b",
    re.IGNORECASE,
)


def small_talk(text: str) -> str:
    """The answer to a message that is about nothing; "" for any other."""
    bare = " ".join(re.sub(r"[^\w\s']+", " ", text[:200].replace("’", "'").lower()).split())
    return next((answer for pattern, answer in SMALL_TALK if re.fullmatch(pattern, bare)), "")


def is_negated(text: str) -> bool:
    """Return whether the message says what not to do."""
    return _NEGATED.match(text) is not None


def takes_all_away(text: str) -> bool:
    """Return whether the message wants everything of a kind gone."""
    return _TAKES_ALL.search(text[:400]) is not None


def is_for_no_tool(text: str) -> bool:
    """Return whether the message asks for writing, or is in another language: no search finds a tool for it."""
    return cannot(text) in (CANNOT_WRITE, *ENGLISH_ONLY.values())


def cannot(text: str) -> str:
    """Why a message that no tool serves is not served."""
    language = language_of([text])
    if language != ENGLISH and len(STOP_WORDS_OF[language].intersection(words_of(text[:400]))) > 1:
        return ENGLISH_ONLY[language]
    if _WRITING.search(text):
        return CANNOT_WRITE
    return CANNOT_KNOW if _KNOWING.search(text) else CANNOT_DO
