package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/internal/keyset"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/migrations"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pools are the connections to the database. The API and the engine each have a pool, so neither waits for connections when the other is
// overloaded, and no route of a tenant can read another tenant's rows.
type pools struct {
	cluster  *postgres.Cluster
	engine   *pgxpool.Pool        // all rows
	platform *pgxpool.Pool        // tenants and API keys
	api      *postgres.TenantPool // the rows of one tenant at a time
}

// platformConnections look up tenants and keys. Few are enough, because the answers are cached. Lookups for callers without a verified
// token use at most half of them.
const platformConnections = 4

// connect opens the pools. It returns an error for a database that lacks migrations, because the first query would fail.
func connect(ctx context.Context, o options) (_ *pools, err error) {
	if err := current(ctx, o.databaseURL); err != nil {
		return nil, err
	}
	cluster := postgres.NewCluster()
	var opened []*pgxpool.Pool
	defer func() {
		if err != nil {
			for _, pool := range opened {
				pool.Close()
			}
		}
	}()
	engine, url := max(8, o.connections/2), cmp.Or(o.apiURL, o.databaseURL)
	for _, one := range []struct {
		url     string
		options postgres.Options
	}{
		{o.databaseURL, postgres.Options{Name: "carillon engine", MaxConns: int32(engine), Role: postgres.EngineRole}},
		{url, postgres.Options{Name: "carillon platform", MaxConns: platformConnections, Role: postgres.PlatformRole}},
		{url, postgres.Options{Name: "carillon api", MaxConns: int32(max(4, o.connections-engine-platformConnections)), Role: postgres.APIRole}},
	} {
		one.options.Cluster, one.options.CallTimeout = cluster, callTimeout
		pool, err := postgres.Open(ctx, one.url, one.options)
		if err != nil {
			return nil, err
		}
		opened = append(opened, pool)
	}
	return &pools{cluster: cluster, engine: opened[0], platform: opened[1], api: postgres.NewTenantPool(opened[2])}, nil
}

// callTimeout ends a call to the database whose context has no deadline.
const callTimeout = 10 * time.Second

// current returns an error if the database lacks migrations, such as the one that creates the roles of the pools.
func current(ctx context.Context, url string) error {
	pool, err := postgres.Open(ctx, url, postgres.Options{Name: "carillon", MaxConns: 1})
	if err != nil {
		return err
	}
	defer pool.Close()
	pending, err := migrations.Pending(ctx, pool)
	if err != nil {
		return fmt.Errorf("read the schema's version: %w", err)
	}
	if pending > 0 {
		return fmt.Errorf("the database lacks %d migrations of this version: run carillon migrate first", pending)
	}
	return nil
}

// ready returns nil for /readyz if the database answers, accepts writes, and lacks no migration.
func (db *pools) ready(ctx context.Context) error {
	var readOnly string
	if err := db.platform.QueryRow(ctx, `SELECT current_setting('transaction_read_only')`).Scan(&readOnly); err != nil {
		return err
	}
	if readOnly == "on" {
		return errors.New("the database accepts no writes")
	}
	pending, err := migrations.Pending(ctx, db.platform)
	if err != nil {
		return err
	}
	if pending > 0 {
		return fmt.Errorf("%d migrations are pending", pending)
	}
	return nil
}

// warnOfSecrets logs, at the start, whether secrets are stored in the clear and whether some cannot be decrypted.
func (db *pools) warnOfSecrets(ctx context.Context, k *keyset.Keyset, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if k == nil {
		log.Warn("secrets of endpoints are stored in the clear: set CARILLON_KEYSET to the output of carillon keyset")
	}
	s, err := push.Sealings(ctx, db.engine, k)
	if err != nil {
		log.Warn("cannot read the secrets of endpoints", "error", err)
		return
	}
	if s.Unreadable > 0 {
		log.Error("CARILLON_KEYSET lacks the keys of some endpoints' secrets, so their ticks are held", "secrets", s.Unreadable)
	}
}

func (db *pools) close() {
	db.api.Close()
	db.platform.Close()
	db.engine.Close()
}
