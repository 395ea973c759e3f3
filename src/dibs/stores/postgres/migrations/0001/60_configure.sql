-- Changes a queue's settings; see Store.configure.
create function dibs.configure(queue text, lifo boolean) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
    select dibs.check_names('queue', array[queue]);
    insert into dibs.queue (name, lifo) values (configure.queue, configure.lifo)
    on conflict (name) do update set lifo = configure.lifo
$$;
