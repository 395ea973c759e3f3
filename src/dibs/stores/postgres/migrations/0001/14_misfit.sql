-- What is wrong with steps that come to a flow, in the words of dibs.limits; null if nothing is. Looks in this order: at
-- their names, at what they need and is none of them, at their ids.
create function dibs.misfit(
    flow uuid, names text[], ids uuid[], adder_name text, needs text[], needed integer[]
) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    wrong text;
    known uuid;
begin
    if adder_name is not null then
        select item.name into wrong from unnest(names) with ordinality as item (name, place)
        where item.name in (
            select job.step from dibs.job where job.flow = misfit.flow
            union all
            select finished.step from dibs.finished where finished.flow = misfit.flow
        )
        order by item.place limit 1;
        if found then
            return format('the steps cannot be added: the flow has a step "%s" already', wrong);
        end if;
    end if;
    select item.name into wrong from unnest(needs, needed) as item (name, place)
    where item.place is null and item.name is distinct from adder_name
    limit 1;
    if found and adder_name is null then
        return format('"%s" is needed and is no step of the flow', wrong);
    elsif found then
        return format(
            'the steps cannot be added: "%s" is needed and is neither one of them nor the step that adds them', wrong
        );
    end if;
    select item.id into known from unnest(ids) with ordinality as item (id, place)
    where exists (select from dibs.job where job.id = any (array[item.id]))
        or exists (select from dibs.finished where finished.id = any (array[item.id]))
    order by item.place limit 1;
    if found then
        return format('a step has the id %s of a job that is there already: give it a new one', known);
    end if;
    return null;
end
$$;
