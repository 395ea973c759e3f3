-- $1 queue, $2 task, $3 ids, $4 args
insert into public.bare (queue, task, id, args)
select $1, $2, item.id, item.args from unnest($3::uuid[], $4::json[]) as item (id, args)
