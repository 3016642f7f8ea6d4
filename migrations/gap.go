package migrations

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
)

// Gap is a place where the catalogue does not isolate tenants. Mend is the repair; if it is empty, migrating again is the repair.
type Gap struct{ What, Mend string }

// Gaps returns the gaps in the isolation of tenants, and the number of tables with rows of tenants. login is the database user
// of tenants' requests. apart means that login must be a member of no roles but the API's and the platform's.
func Gaps(ctx context.Context, db postgres.DB, login string, apart bool) (gaps []Gap, tables int, err error) {
	roles, err := roleGaps(ctx, db, login, apart)
	if err != nil || len(roles.missing) > 0 {
		return roles.missing, 0, err
	}
	found, tables, err := tableGaps(ctx, db, roles.bypassing)
	return append(roles.gaps, found...), tables, err
}

// roleState is what the catalogue says about the roles.
type roleState struct {
	missing, gaps []Gap
	bypassing     bool // no policy applies to the engine's role, so policies can be forced on its tables
}

// roleGaps finds what is wrong with our roles and with login.
func roleGaps(ctx context.Context, db postgres.DB, login string, apart bool) (s roleState, err error) {
	roles, err := readRoles(ctx, db, login)
	if err != nil {
		return s, fmt.Errorf("look at the roles: %w", err)
	}
	for _, r := range roles {
		switch {
		case !r.There:
			s.missing = append(s.missing, Gap{What: "the role " + r.Name + " does not exist"})
		case r.Name == postgres.EngineRole:
			s.bypassing = r.Super || r.Bypasses
		default:
			s.gaps = append(s.gaps, r.gaps(login)...)
		}
	}
	if !apart {
		return s, nil
	}
	gaps, err := loginGaps(ctx, db, login)
	if err != nil {
		return s, fmt.Errorf("look at the API's user: %w", err)
	}
	s.gaps = append(s.gaps, gaps...)
	return s, nil
}

// role is one of our roles as the catalogue describes it.
type role struct {
	Name                   string
	There, Super, Bypasses bool
	Mighty                 []string // roles that it can become and to which no policy applies
	Taken                  bool     // login can become it
}

// readRoles reads our roles: the API's, the platform's and the engine's.
func readRoles(ctx context.Context, db postgres.DB, login string) ([]role, error) {
	rows, _ := db.Query(ctx, `
		SELECT n.name, r.oid IS NOT NULL AS there, COALESCE(r.rolsuper, false) AS super, COALESCE(r.rolbypassrls, false) AS bypasses,
			COALESCE(ARRAY(
				SELECT o.rolname::text FROM pg_roles o
				WHERE o.oid <> r.oid AND (o.rolsuper OR o.rolbypassrls OR o.rolname = $2) AND pg_has_role(r.oid, o.oid, 'MEMBER')
				ORDER BY o.rolname), '{}') AS mighty,
			COALESCE(pg_has_role(l.oid, r.oid, 'MEMBER'), false) AS taken
		FROM unnest($1::text[]) WITH ORDINALITY AS n (name, ord)
		LEFT JOIN pg_roles r ON r.rolname = n.name
		LEFT JOIN pg_roles l ON l.rolname = $3
		ORDER BY n.ord`, []string{postgres.APIRole, postgres.PlatformRole, postgres.EngineRole}, postgres.EngineRole, login) // CollectRows reports the error
	return pgx.CollectRows(rows, pgx.RowToStructByName[role])
}

// gaps returns the rights that let the role see more than one tenant, and reports a login that cannot take on the role.
func (r role) gaps(login string) (gaps []Gap) {
	say := func(what, mend string) { gaps = append(gaps, Gap{what, "as a superuser, run: " + mend}) }
	if r.Super {
		say(r.Name+" is a superuser: no policy applies to it", "ALTER ROLE "+r.Name+" NOSUPERUSER")
	}
	if r.Bypasses {
		say(r.Name+" has BYPASSRLS: no policy applies to it", "ALTER ROLE "+r.Name+" NOBYPASSRLS")
	}
	if !r.Super { // a superuser can become every role
		for _, other := range r.Mighty {
			say(r.Name+" can become "+other+", to which no policy applies", "REVOKE "+pgx.Identifier{other}.Sanitize()+" FROM "+r.Name)
		}
	}
	if !r.Taken {
		say(fmt.Sprintf("%q cannot take on the role %s", login, r.Name), "GRANT "+r.Name+" TO "+pgx.Identifier{login}.Sanitize())
	}
	return gaps
}

// loginGaps returns a gap if login is, or can become, a role to which no policy applies.
func loginGaps(ctx context.Context, db postgres.DB, login string) ([]Gap, error) {
	var mighty bool
	err := db.QueryRow(ctx, `
		SELECT COALESCE(bool_or(o.rolsuper OR o.rolbypassrls OR o.rolname = $2), false)
		FROM pg_roles l
		JOIN pg_roles o ON pg_has_role(l.oid, o.oid, 'MEMBER')
		WHERE l.rolname = $1`, login, postgres.EngineRole).Scan(&mighty)
	if err != nil || !mighty {
		return nil, err
	}
	return []Gap{{
		fmt.Sprintf("%q, the user of tenants' requests, is or can become a role to which no policy applies", login),
		"use a user in CARILLON_API_DATABASE_URL that is a member of " + postgres.APIRole + " and " + postgres.PlatformRole + " and of no other role",
	}}, nil
}

// tenantTable is a table with rows of tenants, as the catalogue describes it.
type tenantTable struct {
	Name                                string
	Owner                               string
	Partition, Secured, Forced, Granted bool
	Own                                 bool     // it has the policy that shows a tenant its own rows
	Wider                               []string // policies that apply to the API and do not check the tenant
}

func tableGaps(ctx context.Context, db postgres.DB, bypassing bool) (gaps []Gap, tables int, err error) {
	rows, _ := db.Query(ctx, `
		SELECT c.relname::text AS name, pg_get_userbyid(c.relowner)::text AS owner, c.relispartition AS partition,
			c.relrowsecurity AS secured, c.relforcerowsecurity AS forced,
			has_table_privilege(api.oid, c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER') AS granted,
			EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'of_tenant' AND api.oid = ANY (p.polroles)) AS own,
			ARRAY(
				SELECT p.polname::text FROM pg_policy p
				WHERE p.polrelid = c.oid AND p.polpermissive AND (0 = ANY (p.polroles) OR EXISTS (
						SELECT FROM unnest(p.polroles) r (oid) WHERE r.oid <> 0 AND pg_has_role(api.oid, r.oid, 'USAGE')))
					AND (p.polname <> 'of_tenant' OR c.relname <> 'lease_beat' AND position($2 IN COALESCE(pg_get_expr(p.polqual, p.polrelid), '')) = 0)
				ORDER BY p.polname) AS wider
		FROM pg_class g
		JOIN pg_class c ON c.relnamespace = g.relnamespace AND c.relkind IN ('r', 'p')
		JOIN pg_roles api ON api.rolname = $1
		WHERE g.oid = 'goose_db_version'::regclass AND (c.relname IN ('tenant', 'lease_beat') OR EXISTS (
			SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped))
		ORDER BY c.relname`, postgres.APIRole, postgres.TenantSetting) // CollectRows reports the error
	all, err := pgx.CollectRows(rows, pgx.RowToStructByName[tenantTable])
	if err != nil {
		return nil, 0, fmt.Errorf("look at the policies: %w", err)
	}
	for _, t := range all {
		for _, what := range t.gaps(bypassing) {
			gaps = append(gaps, Gap{What: what})
		}
	}
	return gaps, len(all), nil
}

func (t tenantTable) gaps(bypassing bool) (found []string) {
	if t.Owner == postgres.APIRole || t.Owner == postgres.PlatformRole {
		found = append(found, t.Name+" belongs to "+t.Owner)
	}
	if !t.Secured {
		found = append(found, t.Name+" has no row-level security")
	}
	if bypassing && t.Secured && !t.Forced {
		found = append(found, "row-level security of "+t.Name+" is not forced on its owner")
	}
	if t.Partition {
		if t.Granted {
			found = append(found, postgres.APIRole+" has a grant on the partition "+t.Name)
		}
		return found
	}
	if t.Granted && !t.Own {
		found = append(found, t.Name+" has no policy that shows a tenant its own rows")
	}
	if len(t.Wider) > 0 {
		found = append(found, t.Name+" has a policy that shows more than a tenant's rows: "+strings.Join(t.Wider, ", "))
	}
	return found
}
