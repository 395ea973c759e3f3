-- Refuses names that dibs.limits would refuse: 1 to 200 characters, none of them a control character or a line
-- separator, and no space at either end. In a table's CHECK this would be evaluated again by every claim.
create function dibs.check_names(what text, names text[]) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
    wrong text;
begin
    select name into wrong
    from (select distinct unnest(names) as name) as named
    where name is null or length(name) not between 1 and 200 or name <> btrim(name, ' ')
        or name ~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]'
    limit 1;
    if found then
        raise '% must have 1 to 200 printable characters and no space at either end, not %', what, quote_nullable(wrong)
            using errcode = 'check_violation';
    end if;
end
$$;
