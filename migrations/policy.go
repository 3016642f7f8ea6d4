package migrations

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
)

// policy is a policy of row-level security, of a table as it stands or as it must be.
type policy struct {
	Name       string `json:"name"`
	Role       string `json:"role"` // several are joined by commas
	Using      string `json:"using"`
	Check      string `json:"check"` // WITH CHECK; empty: the same as Using
	Command    string `json:"command"`
	Permissive bool   `json:"permissive"`
}

// policiesOf reads the policies of a table c.
const policiesOf = `COALESCE((
	SELECT json_agg(json_build_object(
		'name', p.polname, 'command', p.polcmd, 'permissive', p.polpermissive,
		'role', (SELECT string_agg(CASE WHEN r.oid = 0 THEN 'public' ELSE pg_get_userbyid(r.oid)::text END, ',') FROM unnest(p.polroles) AS r (oid)),
		'using', COALESCE(pg_get_expr(p.polqual, p.polrelid), ''), 'check', COALESCE(pg_get_expr(p.polwithcheck, p.polrelid), '')))
	FROM pg_policy p
	WHERE p.polrelid = c.oid), '[]')`

// wanted returns the policies that a table must have, and no others. Their conditions are as we write them.
func wanted(t ownTable, condition string) []policy {
	all := []policy{
		{Name: "of_tenant", Role: postgres.APIRole, Using: condition},
		{Name: "of_engine", Role: postgres.EngineRole, Using: "true"},
	}
	if platformGrants[t.Relname] != "" {
		all = append(all, policy{Name: "of_platform", Role: postgres.PlatformRole, Using: "true"})
	}
	for i := range all {
		all[i].Command, all[i].Permissive = "*", true
	}
	return all
}

// mendPolicies returns the statements that give a table the wanted policies: it drops those that differ, whoever changed or
// created them, and creates those that are missing. Stored tells how PostgreSQL shows each condition.
func (t ownTable) mendPolicies(wanted []policy, stored map[string]string) (list []string) {
	for _, p := range t.Policies {
		kept := slices.ContainsFunc(wanted, func(w policy) bool {
			w.Using = stored[w.Using]
			return w == p
		})
		if !kept {
			list = append(list, `DROP POLICY `+pgx.Identifier{p.Name}.Sanitize()+` ON `+t.Name)
		}
	}
	for _, w := range wanted {
		shown := w
		shown.Using = stored[w.Using]
		if !slices.Contains(t.Policies, shown) {
			list = append(list, `CREATE POLICY `+w.Name+` ON `+t.Name+` TO `+w.Role+` USING (`+w.Using+`)`)
		}
	}
	return list
}

// stored returns how PostgreSQL shows each condition that our policies have, by the condition as we write it. It creates
// policies of a temporary table of the same name and reads them.
func (i isolation) stored(ctx context.Context, tables []ownTable) (map[string]string, error) {
	shown := map[string]string{}
	for _, t := range tables {
		condition := conditionOf(t)
		if condition == "" || shown[condition] != "" {
			continue
		}
		for _, of := range []string{condition, "true"} {
			name := pgx.Identifier{t.Relname}.Sanitize()
			err := i.run(ctx,
				`CREATE TEMPORARY TABLE `+name+` (LIKE `+t.Name+`) ON COMMIT DROP`,
				`CREATE POLICY shown ON pg_temp.`+name+` USING (`+of+`)`)
			if err != nil {
				return nil, err
			}
			var text string
			err = i.tx.QueryRow(ctx, `SELECT pg_get_expr(polqual, polrelid) FROM pg_policy WHERE polrelid = ('pg_temp.' || quote_ident($1))::regclass`, t.Relname).Scan(&text)
			if err != nil {
				return nil, fmt.Errorf("read the condition of %s: %w", t.Relname, err)
			}
			shown[of] = text
			if err := i.run(ctx, `DROP TABLE pg_temp.`+name); err != nil {
				return nil, err
			}
		}
	}
	return shown, nil
}
