"""Functions of Spark that a query may call. A name that is not listed is refused.

The lists are written out, so that neither a new version of Spark nor a function that is registered with
a session adds anything to them.
"""

from __future__ import annotations

from countveil.engines.query.functions import words

# They return the same for the same arguments, and do nothing else.
ROW_FUNCTIONS = words(
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
AGGREGATES = words(
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
WINDOWS = words(
    "counter_diff cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number"
)
# They make several rows of one.
GENERATORS = words(
    """
    explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer range stack
    variant_explode variant_explode_outer
    """
)
# Names that stand for a function without brackets, unless a column is called so.
BARE_FUNCTIONS = words(
    """
    current_catalog current_database current_date current_schema current_time current_timestamp
    current_user localtime localtimestamp session_user user
    """
)
# They ask for the time where they are given none.
TIMED = words("to_unix_timestamp unix_timestamp")
# What such functions, operators and sub-queries are in an analyzed plan: classes of Catalyst's package
# `expressions`. Views have been resolved there, and their functions have no names any more.
EXPRESSIONS = words(
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
OPERATORS = words(
    """
    Aggregate CTERelationDef Deduplicate Distinct Except Expand Filter Generate GlobalLimit Intersect
    Join LateralJoin LocalLimit Offset PipeOperator Project RebalancePartitions Repartition
    RepartitionByExpression ResolvedHint Sort SubqueryAlias Tail Union UnionLoop View Window WithCTE
    WithWindowDefinition
    """
)
