-- Changes a queue's settings: in what order it hands out its jobs, and how long a due job waits to be worth one priority
-- more (null: for ever); see Store.configure.
create function dibs.configure(queue text, lifo boolean default false, ageing interval default null) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform dibs.check_names('queue', array[queue]);
    if dibs.exactly(ageing) not between interval '1 ms' and interval '24 hours' then
        raise 'ageing must be from 1 ms to 1 day, or null for none' using errcode = 'check_violation';
    end if;
    if lifo and ageing is not null then
        raise 'a lifo queue cannot age: its newest job is always first' using errcode = 'check_violation';
    end if;
    insert into dibs.queue (name, lifo, ageing) values (configure.queue, configure.lifo, dibs.exactly(configure.ageing))
    on conflict (name) do update set lifo = configure.lifo, ageing = dibs.exactly(configure.ageing);
end
$$;
