"""The gate for a query on Spark: what runs a program, or is not listed as harmless, is refused.

Nothing runs before that. The text of a query is parsed, and so is that of each SQL view that it reads.
A view that a program made from a DataFrame has no text, so the operators and expressions of the
analyzed plan are checked against lists too.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from py4j.java_gateway import JavaObject, is_instance_of
from pyspark.sql import DataFrame, SparkSession

from countveil.engines.local.allowed_functions import names_in
from countveil.errors import RecordsError

# The functions that a query may call. The lists are explicit, so that neither a new version of Spark
# nor a function registered with a session adds anything to them.

# Their result depends on their arguments only, and they have no effect.
ROW_FUNCTIONS = names_in(
    """
    abs acos acosh add_months aggregate and array array_append array_compact array_contains
    array_distinct array_except array_insert array_intersect array_join array_max array_min
    array_position array_prepend array_remove array_repeat array_size array_sort array_union
    arrays_overlap arrays_zip ascii asin asinh atan atan2 atanh base64 between bigint bin binary
    bit_count bit_get bit_length bitmap_bit_position bitmap_bucket_number bitmap_count boolean
    bround btrim cardinality case cast cbrt ceil ceiling char char_length character_length chr
    coalesce collate concat concat_ws contains conv convert_timezone cos cosh cot crc32 csc date
    date_add date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd
    datediff datepart day dayname dayofmonth dayofweek dayofyear decimal decode degrees div double e
    element_at elt encode endswith equal_null exists exp expm1 extract factorial filter find_in_set
    flatten float floor forall format_number format_string from_base32 from_csv from_json
    from_unixtime from_utc_timestamp from_xml get get_json_object getbit greatest hash hex hour
    hypot if ifnull ilike in initcap instr int is_valid_utf8 is_valid_variant is_variant_null isnan
    isnotnull isnull jaro_winkler_similarity json_array_length json_object_keys last_day lcase least
    left len length levenshtein like ln locate log log10 log1p log2 lower lpad ltrim luhn_check
    make_date make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz
    make_timestamp_ntz make_valid_utf8 make_ym_interval map map_concat map_contains_key map_entries
    map_filter map_from_arrays map_from_entries map_keys map_values map_zip_with mask md5 minute mod
    month monthname months_between named_struct nanvl negative next_day not nullif nullifzero nvl
    nvl2 octet_length or overlay parse_json parse_url pi pmod position positive pow power printf
    quarter quote radians reduce regexp regexp_count regexp_extract regexp_extract_all regexp_instr
    regexp_like regexp_replace regexp_substr repeat replace reverse right rint rlike round rpad
    rtrim schema_of_csv schema_of_json schema_of_variant schema_of_xml sec second sentences sequence
    sha sha1 sha2 shiftleft shiftright shiftrightunsigned sign signum sin sinh size slice smallint
    sort_array soundex space split split_part sqrt startswith str_to_map string struct substr
    substring substring_index tan tanh time time_bucket time_diff time_from_micros time_from_millis
    time_from_seconds time_to_micros time_to_millis time_to_seconds time_trunc timestamp
    timestamp_micros timestamp_millis timestamp_nanos timestamp_seconds tinyint to_base32 to_binary
    to_char to_csv to_date to_json to_number to_time to_timestamp to_timestamp_ltz to_timestamp_ntz
    to_unix_timestamp to_utc_timestamp to_varchar to_variant_object to_xml transform transform_keys
    transform_values translate trim trunc try_add try_divide try_element_at try_make_interval
    try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_mod try_multiply
    try_parse_json try_parse_url try_subtract try_to_binary try_to_date try_to_number try_to_time
    try_to_timestamp try_url_decode try_validate_utf8 try_variant_array_append try_variant_get
    try_variant_insert try_variant_set typeof ucase unbase64 unhex unix_date unix_micros unix_millis
    unix_nanos unix_seconds unix_timestamp upper url_decode url_encode validate_utf8
    variant_array_append variant_delete variant_get variant_insert variant_set variant_strip_nulls
    weekday weekofyear when width_bucket xpath xpath_boolean xpath_double xpath_float xpath_int
    xpath_long xpath_number xpath_short xpath_string xxhash64 year zeroifnull zip_with
    """
)
AGGREGATES = names_in(
    """
    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
    approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg
    bitmap_or_agg bool_and bool_or collect_list collect_set collect_union corr count count_if
    count_min_sketch covar_pop covar_samp every first first_value grouping grouping_id
    histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint kll_merge_agg_double
    kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kurtosis
    last last_value listagg max max_by mean median min min_by mode percentile percentile_approx
    percentile_cont percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope
    regr_sxx regr_sxy regr_syy skewness some std stddev stddev_pop stddev_samp string_agg sum
    theta_intersection_agg theta_sketch_agg theta_union_agg try_avg try_sum
    tuple_intersection_agg_double tuple_intersection_agg_integer tuple_sketch_agg_double
    tuple_sketch_agg_integer tuple_union_agg_double tuple_union_agg_integer var_pop var_samp
    variance
    """
)
WINDOWS = names_in(
    "counter_diff cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number"
)
# They turn one row into several.
GENERATORS = names_in(
    """
    explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer range stack
    variant_explode variant_explode_outer
    """
)
# Names that call a function without parentheses, unless a column has that name.
BARE_FUNCTIONS = names_in(
    """
    current_catalog current_database current_date current_schema current_time current_timestamp
    current_user localtime localtimestamp session_user user
    """
)
# Without arguments they read the clock.
TIMED = names_in("to_unix_timestamp unix_timestamp")
# The same functions, operators and sub-queries in an analyzed plan: classes of Catalyst's package
# `expressions`. Views are resolved there, and their functions no longer have names.
EXPRESSIONS = names_in(
    """
    Abs Acos Acosh Add AddMonths AggregateExpression Alias And AnyValue ApproxTopK
    ApproxTopKAccumulate ApproxTopKCombine ApproxTopKEstimate ApproximatePercentile
    ArrayAggregate ArrayAppend ArrayCompact ArrayContains ArrayDistinct ArrayExcept ArrayExists
    ArrayFilter ArrayForAll ArrayInsert ArrayIntersect ArrayJoin ArrayMax ArrayMin ArrayPosition
    ArrayPrepend ArrayRemove ArrayRepeat ArraySize ArraySort ArrayTransform ArrayUnion
    ArraysOverlap ArraysZip Ascii Asin Asinh Atan Atan2 Atanh AttributeReference Average BRound
    Base32 Base64 Between Bin BinaryPad BinaryPredicate BitAndAgg BitLength BitOrAgg BitXorAgg
    BitmapAndAgg BitmapBitPosition BitmapBucketNumber BitmapConstructAgg BitmapCount BitmapOrAgg
    BitwiseAnd BitwiseCount BitwiseGet BitwiseNot BitwiseOr BitwiseXor BoolAnd BoolOr CaseWhen
    Cast Cbrt Ceil Chr Coalesce Collate Collation CollectList CollectSet CollectUnion
    CommonExpressionDef CommonExpressionRef Concat ConcatWs Contains Conv ConvertTimezone Corr
    Cos Cosh Cot Count CountIf CountMinSketchAgg CounterDiff CounterDiffWithStartTime
    CovPopulation CovSample Crc32 CreateArray CreateMap CreateNamedStruct Csc CsvToStructs
    CumeDist CurrentRow$ CurrentTimeZone DateAdd DateAddInterval DateAddYMInterval DateDiff
    DateFormatClass DateFromUnixDate DateSub DatetimeSub DayName DayOfMonth DayOfWeek DayOfYear
    Decode DenseRank Divide DivideDTInterval DivideInterval DivideYMInterval ElementAt Elt
    Encode EndsWith EqualNull EqualNullSafe EqualTo EulerNumber Exists Exp Explode Expm1 Extract
    ExtractANSIIntervalDays ExtractANSIIntervalHours ExtractANSIIntervalMinutes
    ExtractANSIIntervalMonths ExtractANSIIntervalSeconds ExtractANSIIntervalYears
    ExtractIntervalDays ExtractIntervalHours ExtractIntervalMinutes ExtractIntervalMonths
    ExtractIntervalSeconds ExtractIntervalYears Factorial FindInSet First Flatten Floor
    FormatNumber FormatString FromUTCTimestamp FromUnixTime Get GetArrayItem
    GetArrayStructFields GetJsonObject GetMapValue GetStructField GreaterThan GreaterThanOrEqual
    Greatest Grouping GroupingID Hex HistogramNumeric HllSketchAgg HllSketchEstimate HllUnionAgg
    Hour HyperLogLogPlusPlus Hypot ILike If In InSubquery InitCap Inline IntegralDivide IsNaN
    IsNotNull IsNull IsValidUTF8 IsValidVariant IsVariantNull JaroWinkler JsonObjectKeys
    JsonToStructs JsonTuple KllMergeAggBigint KllMergeAggDouble KllMergeAggFloat
    KllSketchAggBigint KllSketchAggDouble KllSketchAggFloat KllSketchGetNBigint
    KllSketchGetNDouble KllSketchGetNFloat KllSketchToStringBigint KllSketchToStringDouble
    KllSketchToStringFloat Kurtosis Lag LambdaFunction Last LastDay LateralSubquery Lead Least
    Left Length LengthOfJsonArray LessThan LessThanOrEqual Levenshtein Like LikeAll LikeAny
    ListAgg ListQuery Literal Log Log10 Log1p Log2 Logarithm Lower Luhncheck MakeDTInterval
    MakeDate MakeInterval MakeTime MakeTimestamp MakeTimestampFromDateTime MakeTimestampNTZ
    MakeValidUTF8 MakeYMInterval MapConcat MapContainsKey MapEntries MapFilter MapFromArrays
    MapFromEntries MapKeys MapValues MapZipWith Mask Max MaxBy MaxMinByK Md5 Median
    MicrosToTimestamp MillisToTimestamp Min MinBy Minute Mode Month MonthName MonthsBetween
    Multiply MultiplyDTInterval MultiplyInterval MultiplyYMInterval Murmur3Hash NTile NaNvl
    NamedLambdaVariable NanosToTimestamp NextDay Not NotLikeAll NotLikeAny NthValue NullIf
    NullIfResult NullIfZero Nvl Nvl2 OctetLength Or OuterReference Overlay ParseJson ParseToDate
    ParseToTimestamp ParseUrl PercentRank Percentile PercentileCont PercentileDisc Pi PivotFirst
    Pmod PosExplode Pow Quarter Quote RLike Rank RegExpCount RegExpExtract RegExpExtractAll
    RegExpInStr RegExpReplace RegExpSubStr RegrAvgX RegrAvgY RegrCount RegrIntercept RegrR2
    RegrSXX RegrSXY RegrSYY RegrSlope Remainder ResolvedCollation Reverse Right Rint Round
    RoundCeil RoundFloor RowNumber ScalarSubquery SchemaOfCsv SchemaOfJson SchemaOfVariant
    SchemaOfXml Sec Second SecondWithFraction SecondsToTimestamp Sentences Sequence Sha1 Sha2
    ShiftLeft ShiftRight ShiftRightUnsigned Signum Sin Sinh Size Skewness Slice SortArray
    SortOrder SoundEx SpecifiedWindowFrame SplitPart Sqrt Stack StartsWith StddevPop StddevSamp
    StringDecode StringInstr StringInstrWithOccurrence StringLPad StringLocate StringRPad
    StringRepeat StringReplace StringSpace StringSplit StringToMap StringTranslate StringTrim
    StringTrimBoth StringTrimLeft StringTrimRight StructsToCsv StructsToJson StructsToXml
    Substring SubstringIndex Subtract SubtractDates SubtractTimestamps Sum Tan Tanh
    ThetaIntersectionAgg ThetaSketchAgg ThetaSketchEstimate ThetaUnionAgg TimeBucket TimeDiff
    TimeFromMicros TimeFromMillis TimeFromSeconds TimeToMicros TimeToMillis TimeToSeconds
    TimeTrunc TimestampAdd TimestampAddInterval TimestampDiff ToBinary ToCharacter ToDegrees
    ToNumber ToRadians ToTime ToUTCTimestamp ToUnixTimestamp ToVariantObject TransformKeys
    TransformValues TruncDate TruncTimestamp TryAdd TryDivide TryElementAt TryEval
    TryMakeInterval TryMakeTimestamp TryMakeTimestampFromDateTime TryMod TryMultiply TryParseUrl
    TrySubtract TryToBinary TryToNumber TryUrlDecode TryValidateUTF8 TupleIntersectionAggDouble
    TupleIntersectionAggInteger TupleSketchAggDouble TupleSketchAggInteger
    TupleSketchEstimateDouble TupleSketchEstimateInteger TupleUnionAggDouble
    TupleUnionAggInteger TypeOf UnBase32 UnBase64 UnaryMinus UnaryPositive UnboundedFollowing$
    UnboundedPreceding$ Unhex UnixDate UnixMicros UnixMillis UnixNanos UnixSeconds UnixTimestamp
    Upper UrlDecode UrlEncode ValidateUTF8 VariancePop VarianceSamp VariantArrayAppend
    VariantDelete VariantExplode VariantGet VariantInsert VariantSet VariantStripNulls WeekDay
    WeekOfYear WidthBucket WindowExpression WindowSpecDefinition With XPathBoolean XPathDouble
    XPathFloat XPathInt XPathList XPathLong XPathShort XPathString XmlToStructs XxHash64 Year
    YearOfWeek ZeroIfNull ZipWith
    """
)
# Operators of an analyzed plan that only select; leaves, which read, are not among them.
OPERATORS = names_in(
    """
    Aggregate CTERelationDef Deduplicate Distinct Except Expand Filter Generate GlobalLimit Intersect
    Join LateralJoin LocalLimit Offset PipeOperator Project RebalancePartitions Repartition
    RepartitionByExpression ResolvedHint Sort SubqueryAlias Tail Union UnionLoop View Window WithCTE
    WithWindowDefinition
    """
)


# They call any method of any Java class.
_CALLERS = ("reflect", "java_method", "try_reflect")
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
_LITERAL = f"{_EXPRESSIONS}Literal"
_SUBQUERIES = ("Exists", "ListQuery", "ScalarSubquery", "LateralSubquery")
# Otherwise the parser evaluates VALUES, and a date among them no longer shows how it was written.
_EAGER = "spark.sql.parser.eagerEvalOfUnresolvedInlineTable"
# A date or time that is written in full; not 'today', and not '12:30', which means today.
_WRITTEN_DATE = re.compile(r"""\w+\s*r?['"]\s*(epoch\b|[+-]?\d{4,7}(?![\d:]))""", re.IGNORECASE)
_DATES = ("date", "timestamp", "timestamp_ntz")
_CLOCK = "reads the clock"
_SAMPLE = "TABLESAMPLE returns other rows in each run"
_PADDING = "org.apache.spark.sql.catalyst.util.CharVarcharCodegenUtils"  # for CHAR(n)


def bracketed(query: str) -> str:
    """Return a query in parentheses, where Spark's grammar allows a query and no other statement."""
    return f"SELECT * FROM ({query.strip().rstrip(';')}\n)"


def refuse_programs(session: SparkSession, query: str, label: str) -> None:
    """Refuse a query that runs a program or calls an unlisted function; it is parsed, not run."""
    with _literal_rows(session):
        plan = session._jsparkSession.sessionState().sqlParser().parsePlan(query)
    for node in nodes_of(session.sparkContext._gateway, plan):
        what = _program(session.sparkContext._gateway, node)
        if what is not None:
            raise _no_reading(label, what)


def refuse_programs_in_views(frame: DataFrame, label: str) -> None:
    """Refuse the same in views, and anything else in the analyzed plan that changes from run to run."""
    texts = set[str]()
    for operator in operators_of(frame._jdf.queryExecution().analyzed()):
        kind = kind_of(operator)
        if kind == "View" and operator.desc().viewText().isDefined():
            texts.add(str(operator.desc().viewText().get()))
        what = _unlisted_operator(operator, kind)
        for part in own_parts_of(operator) if what is None else ():
            what = what or _unlisted_expression(part)
        if what is not None:
            raise _no_reading(label, what)
    for text in sorted(texts):
        refuse_programs(frame.sparkSession, text, label)


def _no_reading(label: str, what: str) -> RecordsError:
    return RecordsError(
        f"{label}: {what}; a query in [records] only reads records: remove this, or store its result "
        f"as a table first and name that"
    )


@contextlib.contextmanager
def _literal_rows(session: SparkSession) -> Iterator[None]:
    """Let the parser leave VALUES as written."""
    before = session.conf.get(_EAGER, "true")
    session.conf.set(_EAGER, "false")
    try:
        yield
    finally:
        session.conf.set(_EAGER, str(before))


def _program(gateway: Any, node: JavaObject) -> str | None:
    """Return why a node of a parsed query is refused, None if it is not."""
    kind = kind_of(node)
    if "ScriptTransformation" in kind:
        return "TRANSFORM … USING runs a shell command"
    if kind == "Sample":
        return _SAMPLE
    if kind == "Literal":
        return _clock(node)
    if is_instance_of(gateway, node, "org.apache.spark.sql.catalyst.plans.logical.Command"):
        return "contains a statement other than SELECT"
    if kind.endswith("WithUnresolvedIdentifier"):
        return "IDENTIFIER(…) refers to something that is known only when it runs"
    if kind.startswith("Unresolved") and ("Function" in kind or "Generator" in kind):
        names = [name.lower() for name in _texts(gateway, node.productElement(0))]
        for caller in _CALLERS:
            if caller in names:
                return f"the function {caller} runs Java"
        # An identifier of a generator begins with its name, others end with it.
        return _unlisted(node, kind, names[::-1] if "Generator" in kind else names)
    if kind == "UnresolvedAttribute":
        names = [name.lower() for name in _texts(gateway, node.productElement(0))]
        if len(names) == 1 and names[0] in BARE_FUNCTIONS:
            return f"{names[0]} is not in the records and changes from run to run"
    return None


def _unlisted(node: JavaObject, kind: str, names: list[str]) -> str | None:
    """Return why a function is refused, None if it is not."""
    table = "TableValued" in kind
    known = GENERATORS if table else ROW_FUNCTIONS | AGGREGATES | WINDOWS | GENERATORS
    # system.builtin.upper is Spark's own; a function of a schema is a program.
    own = names[:-1] in ([], ["builtin"], ["system", "builtin"], ["", ""])
    name = names[-1] if names else ""
    if name in TIMED and kind == "UnresolvedFunction" and not node.arguments().size():
        return f"the function {name} without arguments reads the clock"
    if own and name in known:
        return None
    what = "table function" if table else "function"
    return (
        f"the {what} {'.'.join(filter(None, names))} is not allowed: it is unknown, has side effects, "
        f"or changes from run to run"
    )


def _clock(literal: JavaObject) -> str | None:
    """Return why a literal such as DATE 'today' is refused; None if it is written in full."""
    if str(literal.dataType().simpleString()) not in _DATES:
        return None
    origin = literal.origin()
    if origin.sqlText().isEmpty() or origin.startIndex().isEmpty():
        return None  # a program made it from a date
    first, last = origin.startIndex().get(), origin.stopIndex().get()
    text = str(origin.sqlText().get())[first : last + 1]
    if not literal.value() or _WRITTEN_DATE.match(text):
        return None
    return f"{text} {_CLOCK}; write the full date"


def _unlisted_operator(operator: JavaObject, kind: str) -> str | None:
    if kind == "Sample":
        return _SAMPLE
    if kind in OPERATORS or not operator.children().size():
        return None
    return f"the operator {kind} in a view is not allowed: it runs a program or is unknown"


def _unlisted_expression(part: JavaObject) -> str | None:
    """Return why an expression of an analyzed plan is refused, None if it is not."""
    name, kind = class_of(part), kind_of(part)
    if kind == "StaticInvoke" and str(part.staticObject().getName()) == _PADDING:
        return None
    if not name.startswith(_EXPRESSIONS) or kind not in EXPRESSIONS:
        return (
            f"the function {part.prettyName()} in a view is not allowed: it is unknown, has side "
            f"effects, or changes from run to run"
        )
    if kind in ("Cast", "ParseToTimestamp"):
        return _undated(part, kind)
    return None


def _undated(part: JavaObject, kind: str) -> str | None:
    """Return why a conversion that takes its date from the clock, as that of '12:30', is refused."""
    target = str(part.dataType().simpleString())
    if kind == "Cast":
        origin = str(part.child().dataType().simpleString())
    else:
        origin = str(part.left().dataType().simpleString())
        if part.format().isDefined():
            return None
    text = target == "timestamp" and origin.startswith(("string", "char", "varchar"))
    if not text and not (target in _DATES and origin.startswith("time(")):
        return None
    return (
        f"a conversion of {origin} to {target} uses today's date if there is none (use to_timestamp "
        f"with a format, or convert to DATE or TIMESTAMP_NTZ)"
    )


def operators_of(plan: JavaObject) -> Iterator[JavaObject]:
    """Yield all operators of an analyzed plan, including those in views and sub-queries."""
    yield plan
    for child in each(plan.children()):
        yield from operators_of(child)
    for part in own_parts_of(plan):
        if kind_of(part) in _SUBQUERIES:
            yield from operators_of(part.plan())


def own_parts_of(operator: JavaObject) -> Iterator[JavaObject]:
    """Yield the expressions of one operator and their parts, except the plans of sub-queries."""
    if not operator.children().size():
        return
    waiting = list(each(operator.expressions()))
    while waiting:
        part = waiting.pop()
        yield part
        waiting += each(part.children())


def nodes_of(gateway: Any, root: Any) -> Iterator[JavaObject]:
    """Yield all nodes of a parsed query, however it is nested."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, JavaObject):
            yield node
            waiting += _parts(gateway, node) if class_of(node) != _LITERAL else ()


def _parts(gateway: Any, node: JavaObject) -> Iterator[Any]:
    # Lists are products too, of a head and a tail; walking them so would go as deep as they are long.
    if is_instance_of(gateway, node, "scala.collection.Iterable"):
        parts = node.iterator()
    elif is_instance_of(gateway, node, "scala.Product"):
        parts = node.productIterator()
    else:
        return
    while parts.hasNext():
        yield parts.next()


def _texts(gateway: Any, part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, JavaObject):
        for inner in _parts(gateway, part):
            yield from _texts(gateway, inner)


def class_of(node: JavaObject) -> str:
    """Return the name of a node's class."""
    return str(node.getClass().getName())


def kind_of(node: JavaObject) -> str:
    """Return the name of a node's class without its package."""
    return class_of(node).rpartition(".")[2]


def each(sequence: Any) -> Iterator[JavaObject]:
    """Yield the elements of a Scala collection."""
    parts = sequence.iterator()
    while parts.hasNext():
        yield parts.next()
