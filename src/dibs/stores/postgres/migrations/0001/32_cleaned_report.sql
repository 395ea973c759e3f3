-- What a handler said, made fit to be kept, as dibs.limits does: an object with any of `progress` (a number, brought
-- into 0 to 1), `note` (up to 200 characters) and `log`, of which the last hundred lines stay. A line is an object with
-- `text` (up to 1,000 characters) and, unless they are the given ones, `at` and `attempt`. What says nothing is left
-- out: the shorter the row, the likelier that its update finds room in its page.
create function dibs.cleaned_report(said jsonb, attempt integer, moment timestamptz) returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select jsonb_strip_nulls(jsonb_build_object(
        'progress', case when jsonb_typeof(said -> 'progress') = 'number'
            then greatest(0, least(1, (said ->> 'progress')::numeric)) end,
        'note', nullif(left(said ->> 'note', 200), ''),
        'log', (
            select jsonb_agg(
                jsonb_build_object(
                    -- Within the times that dibs.check_times allows.
                    'at', greatest(
                        timestamptz '1970-01-01 00:00+00',
                        least(timestamptz '9998-12-31 23:59+00', coalesce((line ->> 'at')::timestamptz, moment))
                    ),
                    'attempt', coalesce((line ->> 'attempt')::integer, attempt),
                    'text', left(coalesce(line ->> 'text', ''), 1000)
                )
                order by place
            )
            from (
                select line, place
                from jsonb_array_elements(
                    case when jsonb_typeof(said -> 'log') = 'array' then said -> 'log' else '[]' end
                ) with ordinality as every (line, place)
                order by place desc
                limit 100
            ) as latest
        )
    ))
$$;
