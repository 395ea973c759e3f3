-- The schema as the database holds it, as text that can be compared: tables with their columns, constraints and
-- indexes, types, views and functions, each in the order of its name. Days of dibs.finished are left out.
select definition
from (
    select
        1 as part, class.relname::text as name,
        format(
            E'table dibs.%s%s\n%s', class.relname, case when class.relispartition then ' (partition)' else '' end,
            (
                select string_agg(
                    format(
                        '    %s %s%s%s%s', attname, format_type(atttypid, atttypmod),
                        case when attcollation = '"C"'::regcollation then ' collate "C"' else '' end,
                        case when attnotnull then ' not null' else '' end,
                        coalesce(' default ' || pg_get_expr(adbin, adrelid), '')
                    ),
                    E'\n' order by attnum
                )
                from pg_attribute left join pg_attrdef on adrelid = attrelid and adnum = attnum
                where attrelid = class.oid and attnum > 0 and not attisdropped
            )
        ) as definition
    from pg_class as class
    where class.relnamespace = 'dibs'::regnamespace and class.relkind in ('r', 'p') and class.relname !~ '^finished_\d+$'
    union all
    select 2, conname::text, format('constraint %s on %s: %s', conname, conrelid::regclass, pg_get_constraintdef(oid))
    from pg_constraint
    where connamespace = 'dibs'::regnamespace and conrelid::regclass::text !~ 'finished_\d+$' and contype <> 'n'
    union all
    select 3, indexname::text, indexdef
    from pg_indexes where schemaname = 'dibs' and tablename !~ '^finished_\d+$'
    union all
    select 4, typname::text, format(
        E'type dibs.%s\n%s', typname,
        (
            select string_agg(format('    %s %s', attname, format_type(atttypid, atttypmod)), E'\n' order by attnum)
            from pg_attribute where attrelid = typrelid and attnum > 0
        )
    )
    from pg_type join pg_class as class on class.oid = typrelid
    where typnamespace = 'dibs'::regnamespace and class.relkind = 'c'
    union all
    select 5, viewname::text, format(E'view dibs.%s\n%s', viewname, definition)
    from pg_views where schemaname = 'dibs'
    union all
    select 6, proname::text || pg_get_function_identity_arguments(oid), pg_get_functiondef(oid)
    from pg_proc where pronamespace = 'dibs'::regnamespace
) as every
order by part, name collate "C"
