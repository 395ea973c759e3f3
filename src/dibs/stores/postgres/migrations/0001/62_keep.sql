-- Keeps a value under each name, or forgets it where the value is null; see Store.keep.
create function dibs.keep(kind text, names text[], contents json[], rank bigint default 0) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform dibs.check_names('kind', array[kind]);
    perform dibs.check_names('name', names);
    if cardinality(names) <> cardinality(contents) or rank is null or rank < 0 then
        raise 'give a value for each name, and a rank from 0' using errcode = 'check_violation';
    end if;
    if exists (select from unnest(contents) as given where json_typeof(given) <> 'object') then
        raise 'what is kept must be a JSON object' using errcode = 'check_violation';
    end if;
    -- In the order of the names, so that no two calls wait for each other.
    perform from dibs.kept_value as known
    where known.kind = keep.kind and known.name = any (names)
    order by known.name for update;
    delete from dibs.kept_value as known
    using unnest(names, contents) as given (name, content)
    where known.kind = keep.kind and known.name = given.name and given.content is null;
    insert into dibs.kept_value as known (kind, name, rank, value)
    select keep.kind, given.name, keep.rank, given.content
    from unnest(names, contents) as given (name, content)
    where given.content is not null
    order by given.name collate "C"
    on conflict on constraint kept_value_pkey do update set rank = excluded.rank, value = excluded.value
    where known.rank <= excluded.rank;
end
$$;
