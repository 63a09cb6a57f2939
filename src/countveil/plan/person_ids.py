"""Person ids that identify no one: blanks, and the usual placeholders for an unknown person.

An id is compared without invisible characters, as a number also without quotes and brackets around
it, and as a word without any punctuation or symbol, in any case and width: `(N/A)`, `n_a` and `N.A.`
are one word. The patterns work in Python, RE2 (DuckDB) and Java (Spark): they use only plain
characters and escapes that all three share. All characters are listed, so that a new version of
Unicode does not change who is counted.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable

# Invisible characters: controls, spaces, separators, format characters, variation selectors, and blank
# letters and symbols.
INVISIBLE = (
    r"[\x00-\x1f\x7f-\x9f "
    "\u00a0\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2"
    "\u115f-\u1160\u1680\u17b4-\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f"
    "\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
# Punctuation and symbols, with the replacement character and emoji.
MARKS = (
    r"[\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e"
    "\u00a1-\u00a9\u00ab-\u00b1\u00b4\u00b6-\u00b8\u00bb\u00bf\u00d7\u00f7\u02b9-\u02df\u02e5-\u02eb"
    "\u02ed\u02ef-\u02ff\u037e\u0387\u055a-\u055f\u0589-\u058a\u05be\u05c0\u05c3\u05f3-\u05f4\u060c"
    "\u061b\u061f\u066a-\u066d\u06d4\u2010-\u2027\u2030-\u205e\u207a-\u207e\u208a-\u208e\u20a0-\u20c0"
    "\u2116\u2190-\u245f\u2500-\u2775\u2794-\u2bff\u2e00-\u2e5d\u3001-\u3004\u3007-\u3020\u3030"
    "\u303d-\u303f\u30a0\u30fb\ufd3e-\ufd3f\ufe10-\ufe19\ufe30-\ufe6b\uff01-\uff0f\uff1a-\uff20"
    "\uff3b-\uff40\uff5b-\uff65\uffe0-\uffee\ufffc-\uffff\U0001f000-\U0001faff]+"
)
_COMBINING = (
    "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\u3099-\u309a\ufe20-\ufe2f]"
)
_MINUS, _PLUS, _POINT = "[-\u2010-\u2015\u2212\ufe58\ufe63\uff0d]", "[+\uff0b]", "[.,\uff0e\uff0c]"
# Quotes and brackets.
_AROUND = (
    r"[\x22\x27\x28\x29\x3c\x3e\x5b\x5d\x60\x7b\x7d"
    "\u00ab\u00b4\u00bb\u2018-\u201f\u2039-\u203a\u3008-\u3011\u3014-\u301b"
    "\uff02\uff07-\uff09\uff1c\uff1e\uff3b\uff3d\uff5b\uff5d]*"
)
_ALPHABETS = range(0x1D400, 0x1D6A4, 52)  # mathematical ones: bold, italic, script …
_NUMERALS = (0x30, 0x660, 0x6F0, 0x966, 0xFF10, *range(0x1D7CE, 0x1D800, 10))  # their zeros
_MORE = {"k": "\u212a", "s": "\u017f"}


def _letter(letter: str) -> str:
    """Return the class of a letter in both cases, plain, full-width, circled and mathematical."""
    number = string.ascii_lowercase.index(letter)
    starts = [0x41, 0x61, 0xFF21, 0xFF41, 0x24B6, 0x24D0]
    starts += [start + half for start in _ALPHABETS for half in (0, 26)]
    return f"[{''.join(chr(start + number) for start in starts)}{_MORE.get(letter, '')}]"


def _spelled(words: str) -> str:
    """Return a pattern of words with their letters in any case and width; other parts stay."""
    return re.sub("[a-z]", lambda match: _letter(match[0]), "|".join(words.split()))


def _digits(first: int, last: int) -> str:
    """Return the class of some digits, in several numerals and widths."""
    return "[" + "".join(f"{chr(zero + first)}-{chr(zero + last)}" for zero in _NUMERALS) + "]"


_NIL, _NINE, _DIGIT = _digits(0, 0), _digits(9, 9), _digits(0, 9)
_E = _letter("e")
_REPEATED = "|".join(f"{_digits(digit, digit)}+" for digit in (6, 7, 8, 9))
# Zeros (also a nil UUID), and 1, 9, 99 … with a minus sign, as are other codes of surveys (-8, -77,
# -98); nine or more nines; all of these also as floats. Shorter positive numbers, such as 999, may be
# one of many real ids in a row.
_NUMBERS = (
    rf"(?:{_PLUS}|{_MINUS})?{_NIL}(?:{_NIL}|{_MINUS})*(?:{_POINT}{_NIL}*)?(?:{_E}[+-]?{_DIGIT}+)?|"
    rf"{_NIL}{_letter('x')}{_NIL}+|"
    rf"{_MINUS}(?:{_digits(1, 9)}|{_REPEATED}|{_NINE}{_digits(5, 9)})(?:{_POINT}{_NIL}*)?|"
    rf"{_NINE}{{9,}}(?:{_POINT}{_NIL}*)?|"
    rf"{_MINUS}{_NINE}(?:{_POINT}{_NINE}+)?{_E}\+?{_DIGIT}+|"
    rf"{_NINE}{_POINT}{_NINE}{{8,}}{_E}\+?{_DIGIT}+|"
    rf"{_digits(1, 1)}(?:{_POINT}{_NIL})?{_E}\+?(?:{_NIL}?{_NINE}|{_digits(1, 9)}{_DIGIT})"
)
# How databases and spreadsheets write a missing value, and the largest UUID.
_WRITTEN = _spelled(
    r"\\n #div/0! #(?:value|ref|num|name|spill|calc|field)[!?]? f{8}-?(?:f{4}-?){3}f{12}"
)
# The words of programs, in every alphabet.
_WORDS = _spelled(
    "na nat null nullnull nil none unknown unk undefined undef missing blank empty xxx+"
)

# What people write for an unknown person, without blanks: "missing id", "person is unknown", "no name
# given", "not found". `_THING` is what is missing, `_STATE` how it is, `_DONE` what was not done.
_THING = """
    answer body case client code customer data details entry id identifier identification identity
    individual info information key match member name number one participant patient people person
    record respondent response ssn subject user value
"""
_STATE = """
    anon anonymi(s|z)ed anonymous blank confidential declined deleted dummy empty hidden invalid
    lost masked missing nil none null pending placeholder redacted refused removed suppressed
    unassigned unavailable undefined undef undisclosed unidentified unk unknown unlinked unmatched
    unnamed unrecorded unregistered unreported unspecified unstated withheld
"""
_DONE = """
    answered applicable ascertained assigned asked available captured collected completed defined
    determined disclosed documented entered established filledin found given identified issued known
    linked listed matched named obtained onfile present provided recorded registered reported
    required set specified stated supplied valid yetassigned yetknown
"""
# Not known, stated, recorded …; the codes of HL7 (NullFlavor) and of surveys in several languages.
_CODES = """
    nk nd nf ni np nr ns dk asku msk nask nav navu tba tbc tbd tobe(assigned|confirmed|determined)
    todo ka nsnc nsp nvt sd
"""
# In other languages, with or without accents; @ is o or a.
_ELSEWHERE = """
    unbekannt(e|er|es)? niemand fehlt fehlend leer anonym ungültig ungueltig entfällt entfaellt
    weissnicht (ohne|keine?)(angaben?|auskunft|daten|id|information|name|namen|nummer|person)
    nicht(angegeben|anwendbar|bekannt|beantwortet|erfasst|erhoben|ermittelbar|gefunden|verfügbar|
    verfuegbar|vorhanden|zugeordnet|zutreffend)
    inconnue? manquante? aucune? anonyme vide invalide nesaitpas
    non(applicable|attribué|communiqué|connu|déclaré|déterminé|disponible|fourni|identifié|précisé|
    renseigné|spécifié|trouvé|valide)e?
    (sans|pasde?)(données|id|identifiant|information|nom|numéro|objet|réponse)
    desconocid@ faltante vací@ anónim@ ningún ningun@ sedesconoce inválid@
    sin(asignar|datos?|especificar|id|identificar|información|nombre|número|registro|respuesta)
    no(aplica|aplicable|asignad@|conocid@|consta|contesta|disponible|encontrad@|especificad@|
    identificad@|informad@|registrad@|responde|sabe|válid@)
    desconhecid@ ignorad@ ausente vazi@ embranco nenhuma?
    sem(dados|id|identificação|informação|nome|número|registro|resposta)
    não(consta|declarad@|disponível|encontrad@|especificad@|identificad@|informad@|preenchid@|
    registrad@|sabe|seaplica)
    sconosciut@ ignot@ mancante vuot@ nessun@? senza(dati|id|nome|numero)
    non(applicabile|conosciut@|dichiarat@|disponibile|identificat@|indicat@|not@|pervenut@|rilevat@|
    specificat@|trovat@|valid@)
    onbekende? ontbreekt ontbrekend leeg ongeldig anoniem geen(antwoord|gegevens|id|naam|nummer|opgave)?
    niet(bekend|beschikbaar|gevonden|geregistreerd|ingevuld|opgegeven|vantoepassing|vermeld)
    okänd saknas uppgiftsaknas ukendt ukjent mangler tuntematon nieznan(y|a|e) brak(danych)? neznámý
    ismeretlen necunoscut bilinmiyor неизвестн(о|ый|ая) нетданных невідомо άγνωστο(ς)?
    不明 不详 不詳 未知 无 無 無し なし 空 未記入 미상 없음 مجهول غيرمعروف
"""


def _phrases() -> str:
    """Return the pattern of what people write, in both cases.

    With letters of more widths and alphabets, RE2 would need memory for it that it does not take, and
    be forty times slower.
    """
    thing, state, done = (f"({'|'.join(words.split())})" for words in (_THING, _STATE, _DONE))
    phrases = [
        f"({thing}{{1,3}}(is|was)?)?{state}",
        f"{state}{thing}{{1,3}}",
        f"({thing}{{1,3}})?(is|was)?not{done}",
        f"(no|without){thing}{{1,3}}{done}?",
        f"none{done}",
        "(do|does|did)(not|nt)(apply|exist|know|remember|say)",
    ]
    joined = re.sub(r"\|\s+", "|", _ELSEWHERE).split()  # a line may end within brackets
    pattern = (
        "|".join([*phrases, *_CODES.split(), *joined]).replace("@", "(o|a)").replace("(", "(?:")
    )
    return re.sub(r"[^\W\d_]", lambda match: _plain(match[0]), pattern)


def _plain(letter: str) -> str:
    """Return the pattern of a letter in both cases, with or without its accents."""
    parts = unicodedata.normalize("NFD", letter)
    base, accents = parts[0], parts[1:]
    if letter.upper() == letter:
        return letter
    both = f"[{letter}{letter.upper()}]"
    if not accents or base not in string.ascii_lowercase:
        return both
    return f"(?:{both}|{_plain(base)}{_COMBINING}?)"


BLANK = r"(?:[+-]?[nN][aA][nN])?"  # without invisible characters
NUMBER = f"{_AROUND}(?:{_NUMBERS}|{_WRITTEN}){_AROUND}"  # without invisible characters
WORD = f"(?:{_WORDS}|{_phrases()}|{_COMBINING}*)"  # without invisible characters and marks
_INVISIBLE, _MARKS, _BLANK, _NUMBER, _WORD = map(
    re.compile, (INVISIBLE, MARKS, BLANK, NUMBER, WORD)
)


def is_blank(person: str | None) -> bool:
    """Return whether an id is missing, NaN, or invisible."""
    return _BLANK.fullmatch(_visible(person)) is not None


def is_placeholder(person: str | None, real_ids: Iterable[str] = ()) -> bool:
    """Return whether an id is a usual placeholder that the plan does not list as real."""
    visible = _visible(person)
    usual = _NUMBER.fullmatch(visible) or _WORD.fullmatch(_MARKS.sub("", visible))
    return usual is not None and person not in set(real_ids)


def _visible(person: str | None) -> str:
    return _INVISIBLE.sub("", person or "")
