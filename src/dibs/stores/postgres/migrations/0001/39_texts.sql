-- A JSON array of strings as an array; null if there is none. Anything else is an error: it must not mean "any".
create function dibs.texts(list jsonb) returns text[]
language sql immutable parallel safe
as $$ select case when list is not null then array(select jsonb_array_elements_text(list)) end $$;
