package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pressly/goose/v3"

	"github.com/carillonhq/carillon/internal/postgres"
)

// Roles, grants and policies isolate tenants even if a query does not name its tenant. They are set after every migration, for all
// tables of the catalogue. So a new table is isolated without further work, and changes by hand are corrected.
//
//	carillon_api       sees the rows of its session's tenant, in every table with a tenant_id
//	carillon_platform  sees tenants, their API keys and its own audit, notes the use of keys, and writes the audit of both
//	carillon_engine    owns the tables and sees everything: by BYPASSRLS where that can be granted, else by policies and as the owner
//
// isolationVersion is the version of the migration that sets them for the first time.
const isolationVersion = 9

const (
	isolationLock = lockID + 1
	mostTries     = 20
	retryPause    = 50 * time.Millisecond
)

// isolate sets roles, grants and policies. Roles belong to the whole cluster, and another process may set them for another database at
// the same moment. A step that fails for this reason is repeated.
func isolate(ctx context.Context, pool *pgxpool.Pool) error {
	for attempt := 1; ; attempt++ {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(isolationLock)); err != nil {
				return err
			}
			return isolation{tx}.apply(ctx)
		})
		if attempt == mostTries || !contended(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(retryPause):
		}
	}
}

// contended reports whether another process changed the same role, or locked the same tables, at the same moment.
func contended(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return false
	}
	switch e.Code {
	case "42710", "23505", "40P01": // duplicate_object, unique_violation, deadlock_detected
		return true
	case "XX000":
		return strings.Contains(e.Message, "concurrently updated") // a row of the catalogue; this error has no code of its own
	}
	return false
}

// isolating returns the migration that isolates tenants for the first time. A database without it lacks a migration.
func isolating(pool *pgxpool.Pool) *goose.Migration {
	up := func(ctx context.Context, _ *sql.DB) error { return isolate(ctx, pool) }
	return goose.NewGoMigration(isolationVersion, &goose.GoFunc{RunDB: up}, nil)
}

type isolation struct{ tx pgx.Tx }

func (i isolation) apply(ctx context.Context) error {
	for _, role := range []string{postgres.APIRole, postgres.PlatformRole, postgres.EngineRole} {
		if err := i.role(ctx, role); err != nil {
			return err
		}
	}
	var schema string
	var forced bool
	err := i.tx.QueryRow(ctx, `
		SELECT quote_ident(n.nspname), EXISTS (SELECT FROM pg_roles WHERE rolname = $1 AND (rolbypassrls OR rolsuper))
		FROM pg_class c
		JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.oid = 'goose_db_version'::regclass`, postgres.EngineRole).Scan(&schema, &forced)
	if err != nil {
		return fmt.Errorf("look for our schema: %w", err)
	}
	if err := i.schema(ctx, schema); err != nil {
		return err
	}
	tables, err := i.tables(ctx)
	if err != nil {
		return err
	}
	stored, err := i.stored(ctx, tables)
	if err != nil {
		return fmt.Errorf("read how conditions are stored: %w", err)
	}
	for _, t := range tables {
		if err := i.table(ctx, t, forced, stored); err != nil {
			return fmt.Errorf("isolate the tenants of %s: %w", t.Name, err)
		}
	}
	if err := i.wake(ctx, schema); err != nil {
		return err
	}
	return i.analyze(ctx, schema)
}

// errRole returns an error that says what a superuser must do once.
func errRole(role, what string, err error) error {
	bypass := ""
	if role == postgres.EngineRole {
		bypass = " BYPASSRLS"
	}
	return fmt.Errorf("%s: %w; as a superuser, run CREATE ROLE %s NOLOGIN%s (if it does not exist), GRANT %s TO CURRENT_USER of this URL, and migrate again", what, err, role, bypass, role)
}

// role creates the role if it does not exist, and makes the current user a member of it.
func (i isolation) role(ctx context.Context, role string) error {
	var there, passes, member, bypasses bool
	err := i.tx.QueryRow(ctx, `
		SELECT r.oid IS NOT NULL, COALESCE(r.rolsuper OR r.rolbypassrls, false), COALESCE(pg_has_role(r.oid, 'USAGE'), false), me.rolsuper
		FROM pg_roles me
		LEFT JOIN pg_roles r ON r.rolname = $1
		WHERE me.rolname = current_user`, role).Scan(&there, &passes, &member, &bypasses)
	if err != nil {
		return fmt.Errorf("look for the role %s: %w", role, err)
	}
	engine := role == postgres.EngineRole
	if passes && !engine {
		return fmt.Errorf("the role %s must be neither a superuser nor BYPASSRLS: no policy applies to it", role)
	}
	bypass := ""
	if engine && bypasses {
		bypass = " BYPASSRLS"
	}
	switch {
	case !there:
		if _, err := i.tx.Exec(ctx, `CREATE ROLE `+role+` NOLOGIN`+bypass); err != nil {
			return errRole(role, "the role "+role+" cannot be created", err)
		}
		member = bypasses
	case bypass != "" && !passes:
		if _, err := i.tx.Exec(ctx, `ALTER ROLE `+role+bypass); err != nil {
			return err
		}
	}
	if member {
		return nil
	}
	if _, err := i.tx.Exec(ctx, `GRANT `+role+` TO CURRENT_USER`); err != nil {
		return errRole(role, "the role "+role+" cannot be taken on", err)
	}
	return nil
}

// schema grants the roles the use of the schema. The engine also creates partitions in it.
func (i isolation) schema(ctx context.Context, schema string) error {
	for _, g := range []struct{ role, right string }{
		{postgres.APIRole, "USAGE"}, {postgres.PlatformRole, "USAGE"}, {postgres.EngineRole, "USAGE"}, {postgres.EngineRole, "CREATE"},
	} {
		var has bool
		if err := i.tx.QueryRow(ctx, `SELECT has_schema_privilege($1, '`+schema+`', $2)`, g.role, g.right).Scan(&has); err != nil {
			return err
		}
		if has {
			continue
		}
		if _, err := i.tx.Exec(ctx, `GRANT `+g.right+` ON SCHEMA `+schema+` TO `+g.role); err != nil {
			return fmt.Errorf("grant %s the use of the schema: %w", g.role, err)
		}
	}
	return nil
}

// ownTable is a table of ours as the catalogue describes it.
type ownTable struct {
	Name      string // qualified and quoted
	Relname   string
	Own       bool // the engine owns it
	OfTenant  bool // it has a tenant_id
	Columns   []string
	Partition bool
	Secured   bool
	Forced    bool
	Policies  []policy
}

// tables returns the tables of the schema that belong to the user that migrated it first, or to the engine.
func (i isolation) tables(ctx context.Context) ([]ownTable, error) {
	rows, _ := i.tx.Query(ctx, `
		SELECT format('%I.%I', n.nspname, c.relname) AS name, c.relname, c.relowner = e.oid AS own, c.relispartition AS partition,
			c.relrowsecurity AS secured, c.relforcerowsecurity AS forced,
			EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped) AS of_tenant,
			ARRAY (SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns,
			`+policiesOf+` AS policies
		FROM pg_class g
		JOIN pg_class c ON c.relnamespace = g.relnamespace AND c.relkind IN ('r', 'p')
		JOIN pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_roles e ON e.rolname = $1
		WHERE g.oid = 'goose_db_version'::regclass AND c.relowner IN (g.relowner, e.oid)
		ORDER BY c.relispartition, c.relname`, postgres.EngineRole) // CollectRows reports the error
	return pgx.CollectRows(rows, pgx.RowToStructByName[ownTable])
}

// table isolates the tenants of one table. It leaves alone what is correct, because most of these statements lock the table.
func (i isolation) table(ctx context.Context, t ownTable, forced bool, stored map[string]string) error {
	if t.Relname == "goose_db_version" {
		return i.run(ctx, `GRANT SELECT ON `+t.Name+` TO `+strings.Join([]string{postgres.APIRole, postgres.PlatformRole, postgres.EngineRole}, ", "))
	}
	var list []string
	if !t.Own {
		list = append(list, `ALTER TABLE `+t.Name+` OWNER TO `+postgres.EngineRole)
	}
	condition := conditionOf(t)
	if condition == "" {
		return i.run(ctx, append(list, grants(t)...)...)
	}
	if !t.Secured {
		list = append(list, `ALTER TABLE `+t.Name+` ENABLE ROW LEVEL SECURITY`)
	}
	// COPY fails if policies apply to the role that copies. They apply to the owner only if they are forced.
	if forced && !t.Forced {
		list = append(list, `ALTER TABLE `+t.Name+` FORCE ROW LEVEL SECURITY`)
	}
	if !forced && t.Forced {
		list = append(list, `ALTER TABLE `+t.Name+` NO FORCE ROW LEVEL SECURITY`)
	}
	if !t.Partition { // queries of its parent use the parent's policies, and no other role has a grant on it
		list = append(list, t.mendPolicies(wanted(t, condition), stored)...)
	}
	return i.run(ctx, append(list, grants(t)...)...)
}

// caller is the tenant of the session, or NULL without one. It is not a subquery: PostgreSQL evaluates a subquery once, but sets it up
// for each table of each query. With subqueries a read of one schedule took 1.6 times the CPU, without them 1.3 times.
const caller = `NULLIF(current_setting('` + postgres.TenantSetting + `', true), '')::int`

// conditionOf returns the condition of a tenant's rows of a table, or "" if no row belongs to a tenant.
func conditionOf(t ownTable) string {
	switch {
	case t.OfTenant:
		return `tenant_id = ` + caller
	case t.Relname == "tenant":
		return `id = ` + caller
	case t.Relname == "lease_beat":
		return `EXISTS (SELECT FROM lease l WHERE l.id = lease_id)` // policies let the caller see only its own leases
	}
	return ""
}

// apiGrants are the grants of the API that differ from reading and writing a tenant's rows. The API has no grant on a table without
// tenant_id that is not listed here.
var apiGrants = map[string]string{
	"tenant":     "SELECT, UPDATE (halted_at, halt_note, own_issuers, fallback_timezone, updated_at)",
	"lease_beat": "SELECT, INSERT, UPDATE, DELETE",
	"tzdata":     "SELECT",
	"folded":     "SELECT",                 // a count reads where its deltas begin
	"river_job":  "SELECT, INSERT, UPDATE", // River inserts with ON CONFLICT DO UPDATE; a job holds a number, and no data of a tenant
}

// apiSequences are the sequences that the API uses by name. Identity columns need no grant.
var apiSequences = map[string]string{
	"schedule":  "schedule_id_seq",
	"slot":      "slot_id_seq",
	"queued":    "queued_id_seq",
	"river_job": "river_job_id_seq",
}

// platformGrants are the grants of the platform's role, the only one besides the engine that sees several tenants.
var platformGrants = map[string]string{
	"tenant":  "SELECT, INSERT, UPDATE",
	"api_key": "SELECT",
	"audit":   "INSERT",

	"platform_audit": "SELECT, INSERT",
}

// platformColumns are further columns that the platform may change, if a migration has added them.
var platformColumns = map[string]string{"api_key": "last_used_at"}

// grants returns the statements that set the rights of the API and the platform on a table. The engine owns it.
func grants(t ownTable) []string {
	list := []string{`REVOKE ALL ON ` + t.Name + ` FROM PUBLIC, ` + postgres.APIRole + `, ` + postgres.PlatformRole}
	if t.Partition {
		return list
	}
	api := apiGrants[t.Relname]
	if api == "" && t.OfTenant {
		api = "SELECT, INSERT, UPDATE, DELETE"
	}
	if api != "" {
		list = append(list, `GRANT `+api+` ON `+t.Name+` TO `+postgres.APIRole)
	}
	if platform := platformGrants[t.Relname]; platform != "" {
		list = append(list, `GRANT `+platform+` ON `+t.Name+` TO `+postgres.PlatformRole)
	}
	if column := platformColumns[t.Relname]; slices.Contains(t.Columns, column) {
		list = append(list, `GRANT UPDATE (`+column+`) ON `+t.Name+` TO `+postgres.PlatformRole)
	}
	if sequence := apiSequences[t.Relname]; sequence != "" {
		list = append(list, `GRANT USAGE ON SEQUENCE `+strings.TrimSuffix(t.Name, t.Relname)+sequence+` TO `+postgres.APIRole)
	}
	return list
}

// analyze creates the function that analyzes new tables for the API, which owns no table: see postgres.AnalyzeNew. The function runs as
// the engine, with a search_path that its caller cannot choose.
func (i isolation) analyze(ctx context.Context, schema string) error {
	name := schema + `.analyze_new()`
	return i.run(ctx,
		`CREATE OR REPLACE FUNCTION `+name+` RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  name text;
BEGIN
  IF NOT pg_try_advisory_xact_lock(`+strconv.Itoa(int(postgres.AnalyzeLocks))+`, 0) THEN
    RETURN;
  END IF;
  FOR name IN
    SELECT format('%I.%I', n.nspname, c.relname)
    FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.oid = '`+schema+`'::regnamespace AND c.relkind = 'r' AND pg_relation_size(c.oid) > 131072
      AND (c.reltuples < 0 OR pg_relation_size(c.oid) > 4 * 8192 * c.relpages::bigint)
  LOOP
    EXECUTE 'ANALYZE (SKIP_LOCKED) ' || name;
  END LOOP;
END
$$`,
		`ALTER FUNCTION `+name+` OWNER TO `+postgres.EngineRole,
		`REVOKE ALL ON FUNCTION `+name+` FROM PUBLIC`,
		`GRANT EXECUTE ON FUNCTION `+name+` TO `+postgres.APIRole)
}

// wake sets the owner of the trigger function that runs as the engine, and the schema in which it finds its tables.
func (i isolation) wake(ctx context.Context, schema string) error {
	name := schema + `.wake_tenant()`
	return i.run(ctx,
		`ALTER FUNCTION `+name+` SET search_path = `+schema+`, pg_temp`,
		`ALTER FUNCTION `+name+` OWNER TO `+postgres.EngineRole)
}

func (i isolation) run(ctx context.Context, list ...string) error {
	for _, sql := range list {
		if _, err := i.tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}
