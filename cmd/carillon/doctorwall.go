package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/migrations"
)

// examineWall tells of each place where a tenant might see what is another's should a query forget to name it; of a wall
// that stands, in one line.
func examineWall(ctx context.Context, pool *pgxpool.Pool, apiURL string) (findings []finding) {
	if pending, err := migrations.Pending(ctx, pool); err != nil || pending > 0 {
		return nil // the schema is what is to be mended first
	}
	login, apart := pool.Config().ConnConfig.User, apiURL != ""
	if apart {
		api, err := postgres.Open(ctx, apiURL, postgres.Options{Name: "carillon doctor", MaxConns: 1})
		if err != nil {
			return []finding{fine("wall", "CARILLON_API_DATABASE_URL: %v", err).fail("mend that URL: tenants' requests cannot reach the database by it")}
		}
		defer api.Close()
		login = api.Config().ConnConfig.User
	}
	gaps, tables, err := migrations.Gaps(ctx, pool, login, apart)
	if err != nil {
		return []finding{fine("wall", "%v", err).fail("see the server's log")}
	}
	for _, g := range gaps {
		mend := "run: carillon migrate (it restores the roles, policies and grants even if no migration is pending)"
		if g.Mend != "" {
			mend = g.Mend
		}
		findings = append(findings, fine("wall", "%s", g.What).fail(mend))
	}
	if len(gaps) > 0 {
		return findings
	}
	return []finding{fine("wall", "tenants are kept apart by row-level security on %d tables and partitions; requests run as %s, whom it holds", tables, postgres.APIRole)}
}
