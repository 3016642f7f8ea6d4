package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pressly/goose/v3"

	"github.com/carillonhq/carillon/internal/postgres"
)

// The wall is what keeps tenants apart where a query forgets to: roles, grants and policies. It is raised after every
// migration, over all tables that there are, so that a table that comes later stands behind it by being there, and what
// somebody changed by hand is as it should be again.
//
//	carillon_api       sees the rows of the tenant that its session says, of every table with a tenant_id
//	carillon_platform  sees who the tenants are and their API keys, notes their use, and writes of them into the audit
//	carillon_engine    owns the tables, and sees all: by BYPASSRLS where that may be granted, else by policies and as the owner
const wallVersion = 9

const (
	wallLock     = lockID + 1
	mostRaising  = 20
	raisingAgain = 50 * time.Millisecond
)

// raise makes the wall whole. Roles are those of the whole cluster, so that processes which migrate other databases of
// it may be doing the same: what fails for that is done again.
func raise(ctx context.Context, pool *pgxpool.Pool) error {
	for attempt := 1; ; attempt++ {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(wallLock)); err != nil {
				return err
			}
			return wall{tx}.raise(ctx)
		})
		if attempt == mostRaising || !contended(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(raisingAgain):
		}
	}
}

// contended tells whether another has made or changed the same role, or locked the same tables, at the same moment.
func contended(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return false
	}
	switch e.Code {
	case "42710", "23505", "40P01": // duplicate_object, unique_violation, deadlock_detected
		return true
	case "XX000":
		return strings.Contains(e.Message, "concurrently updated") // of a row of a catalogue; it has no code of its own
	}
	return false
}

// walling is the migration that raises it for the first time: a database without it is one that lacks a migration.
func walling(pool *pgxpool.Pool) *goose.Migration {
	up := func(ctx context.Context, _ *sql.DB) error { return raise(ctx, pool) }
	return goose.NewGoMigration(wallVersion, &goose.GoFunc{RunDB: up}, nil)
}

type wall struct{ tx pgx.Tx }

func (w wall) raise(ctx context.Context) error {
	for _, role := range []string{postgres.APIRole, postgres.PlatformRole, postgres.EngineRole} {
		if err := w.role(ctx, role); err != nil {
			return err
		}
	}
	var schema string
	var forced bool
	err := w.tx.QueryRow(ctx, `
		SELECT quote_ident(n.nspname), EXISTS (SELECT FROM pg_roles WHERE rolname = $1 AND (rolbypassrls OR rolsuper))
		FROM pg_class c
		JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.oid = 'goose_db_version'::regclass`, postgres.EngineRole).Scan(&schema, &forced)
	if err != nil {
		return fmt.Errorf("look for our schema: %w", err)
	}
	if err := w.schema(ctx, schema); err != nil {
		return err
	}
	tables, err := w.tables(ctx)
	if err != nil {
		return err
	}
	stored, err := w.stored(ctx, tables)
	if err != nil {
		return fmt.Errorf("read how conditions are stored: %w", err)
	}
	for _, t := range tables {
		if err := w.table(ctx, t, forced, stored); err != nil {
			return fmt.Errorf("put %s behind the wall: %w", t.Name, err)
		}
	}
	if err := w.wake(ctx, schema); err != nil {
		return err
	}
	return w.analyze(ctx, schema)
}

// errRole says what somebody who may must do once.
func errRole(role, what string, err error) error {
	bypass := ""
	if role == postgres.EngineRole {
		bypass = " BYPASSRLS"
	}
	return fmt.Errorf("%s: %w; have a superuser run CREATE ROLE %s NOLOGIN%s (where it is not there), GRANT %s TO CURRENT_USER of this URL, and migrate again", what, err, role, bypass, role)
}

// role makes a role that is not there, and whoever migrates a member of it.
func (w wall) role(ctx context.Context, role string) error {
	var there, unwalled, member, bypasses bool
	err := w.tx.QueryRow(ctx, `
		SELECT r.oid IS NOT NULL, COALESCE(r.rolsuper OR r.rolbypassrls, false), COALESCE(pg_has_role(r.oid, 'USAGE'), false), me.rolsuper
		FROM pg_roles me
		LEFT JOIN pg_roles r ON r.rolname = $1
		WHERE me.rolname = current_user`, role).Scan(&there, &unwalled, &member, &bypasses)
	if err != nil {
		return fmt.Errorf("look for the role %s: %w", role, err)
	}
	engine := role == postgres.EngineRole
	if unwalled && !engine {
		return fmt.Errorf("the role %s must be neither a superuser nor BYPASSRLS: no policy holds it", role)
	}
	bypass := ""
	if engine && bypasses {
		bypass = " BYPASSRLS"
	}
	switch {
	case !there:
		if _, err := w.tx.Exec(ctx, `CREATE ROLE `+role+` NOLOGIN`+bypass); err != nil {
			return errRole(role, "the role "+role+" cannot be made", err)
		}
		member = bypasses
	case bypass != "" && !unwalled:
		if _, err := w.tx.Exec(ctx, `ALTER ROLE `+role+bypass); err != nil {
			return err
		}
	}
	if member {
		return nil
	}
	if _, err := w.tx.Exec(ctx, `GRANT `+role+` TO CURRENT_USER`); err != nil {
		return errRole(role, "the role "+role+" cannot be taken on", err)
	}
	return nil
}

// schema lets the roles into it; the engine makes partitions there, and moves rows by way of temporary tables.
func (w wall) schema(ctx context.Context, schema string) error {
	for _, g := range []struct{ role, right string }{
		{postgres.APIRole, "USAGE"}, {postgres.PlatformRole, "USAGE"}, {postgres.EngineRole, "USAGE"}, {postgres.EngineRole, "CREATE"},
	} {
		var has bool
		if err := w.tx.QueryRow(ctx, `SELECT has_schema_privilege($1, '`+schema+`', $2)`, g.role, g.right).Scan(&has); err != nil {
			return err
		}
		if has {
			continue
		}
		if _, err := w.tx.Exec(ctx, `GRANT `+g.right+` ON SCHEMA `+schema+` TO `+g.role); err != nil {
			return fmt.Errorf("let %s into the schema: %w", g.role, err)
		}
	}
	return nil
}

// walled is a table of ours as it stands.
type walled struct {
	Name      string // qualified and quoted
	Relname   string
	Own       bool // of the engine
	OfTenant  bool // it has a tenant_id
	Columns   []string
	Partition bool
	Secured   bool
	Forced    bool
	Policies  []policy
}

// tables are those of the schema that are ours: of whoever migrated it first, or of the engine.
func (w wall) tables(ctx context.Context) ([]walled, error) {
	rows, _ := w.tx.Query(ctx, `
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
	return pgx.CollectRows(rows, pgx.RowToStructByName[walled])
}

// table puts one table behind the wall. What is as it should be is left alone, as most of this takes the table's lock.
func (w wall) table(ctx context.Context, t walled, forced bool, stored map[string]string) error {
	if t.Relname == "goose_db_version" {
		return w.run(ctx, `GRANT SELECT ON `+t.Name+` TO `+strings.Join([]string{postgres.APIRole, postgres.PlatformRole, postgres.EngineRole}, ", "))
	}
	var list []string
	if !t.Own {
		list = append(list, `ALTER TABLE `+t.Name+` OWNER TO `+postgres.EngineRole)
	}
	condition := conditionOf(t)
	if condition == "" {
		return w.run(ctx, append(list, grants(t)...)...)
	}
	if !t.Secured {
		list = append(list, `ALTER TABLE `+t.Name+` ENABLE ROW LEVEL SECURITY`)
	}
	// COPY goes to no table whose policies count for who copies. The owner's count where they are forced.
	if forced && !t.Forced {
		list = append(list, `ALTER TABLE `+t.Name+` FORCE ROW LEVEL SECURITY`)
	}
	if !forced && t.Forced {
		list = append(list, `ALTER TABLE `+t.Name+` NO FORCE ROW LEVEL SECURITY`)
	}
	if !t.Partition { // a partition's own policies are not asked by way of its table, and nobody else has a grant on it
		list = append(list, t.mendPolicies(wanted(t, condition), stored)...)
	}
	return w.run(ctx, append(list, grants(t)...)...)
}

// caller is the tenant that the session says: NULL where it says none. It is no subquery, which would be evaluated once
// but set up for each table of each query: a read of one schedule took 1.6 times the CPU with those, and 1.3 without.
const caller = `NULLIF(current_setting('` + postgres.TenantSetting + `', true), '')::int`

// conditionOf is what a tenant's rows of a table meet; empty where no row is a tenant's.
func conditionOf(t walled) string {
	switch {
	case t.OfTenant:
		return `tenant_id = ` + caller
	case t.Relname == "tenant":
		return `id = ` + caller
	case t.Relname == "lease_beat":
		return `EXISTS (SELECT FROM lease l WHERE l.id = lease_id)` // as far as the caller sees that
	}
	return ""
}

// apiGrants are those that differ from reading and writing a tenant's rows; a table without tenants that is not here is
// not the API's to see.
var apiGrants = map[string]string{
	"tenant":     "SELECT, UPDATE (halted_at, halt_note, updated_at)",
	"lease_beat": "SELECT, INSERT, UPDATE, DELETE",
	"tzdata":     "SELECT",
	"folded":     "SELECT",                 // where the deltas of counts begin
	"river_job":  "SELECT, INSERT, UPDATE", // River inserts with ON CONFLICT DO UPDATE; a job holds a number, and nothing of a tenant's
}

// apiSequences are those that the API draws numbers of by their names; identity columns need no grant.
var apiSequences = map[string]string{
	"schedule":  "schedule_id_seq",
	"river_job": "river_job_id_seq",
}

// platformGrants are all that spans tenants outside of the engine.
var platformGrants = map[string]string{
	"tenant":  "SELECT, INSERT, UPDATE",
	"api_key": "SELECT",
	"audit":   "INSERT",
}

// platformColumns are those that the platform may change beside that, once a migration has added them.
var platformColumns = map[string]string{"api_key": "last_used_at"}

// grants are all that the roles may do with a table; the engine owns it.
func grants(t walled) []string {
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

// analyze makes the function by which the API, who owns no table, has the planner learn of new ones: see
// postgres.AnalyzeNew. It runs as the engine, and looks things up nowhere that its caller could choose.
func (w wall) analyze(ctx context.Context, schema string) error {
	name := schema + `.analyze_new()`
	return w.run(ctx,
		`CREATE OR REPLACE FUNCTION `+name+` RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  name text;
BEGIN
  FOR name IN
    SELECT format('%I.%I', n.nspname, c.relname)
    FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.oid = '`+schema+`'::regnamespace AND c.relkind = 'r' AND c.reltuples < 0 AND pg_relation_size(c.oid) > 131072
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
func (w wall) wake(ctx context.Context, schema string) error {
	name := schema + `.wake_tenant()`
	return w.run(ctx,
		`ALTER FUNCTION `+name+` SET search_path = `+schema+`, pg_temp`,
		`ALTER FUNCTION `+name+` OWNER TO `+postgres.EngineRole)
}

func (w wall) run(ctx context.Context, list ...string) error {
	for _, sql := range list {
		if _, err := w.tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}
