package tenants

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
)

// keyHolder is an API key as one of its secrets shows it. ExpiresAt is the end of the key or of that secret, whichever comes first.
type keyHolder struct {
	ID        string
	TenantID  ID
	Tenant    string
	Status    string // of the tenant
	Scopes    []string
	Workflows []string
	ExpiresAt *time.Time
	Expired   bool // by the database's clock
}

type secretEntry struct {
	holder keyHolder
	at     time.Time
}

// byKey returns the identity of a request whose credential is an API key itself. It returns a fault 401 for an invalid key. The
// identity is at most two seconds old.
func (d *Directory) byKey(ctx context.Context, key string) (Identity, error) {
	x, ok, err := d.holderOf(ctx, key)
	if err != nil {
		return Identity{}, err
	}
	if !ok || x.Expired || x.Status != Active || d.deleted(x) {
		return Identity{}, invalid("the API key is not valid")
	}
	return Identity{
		Tenant: x.TenantID, TenantName: x.Tenant, Subject: x.ID, Scopes: x.Scopes, Workflows: x.Workflows, ExpiresAt: x.ExpiresAt,
	}, nil
}

// deleted reports whether this process knows that the key was deleted. An id is never used again.
func (d *Directory) deleted(x keyHolder) bool {
	e, known := d.keys.Get(keyName{x.TenantID, x.ID})
	return known && !e.lives
}

// holderOf is findHolder with a cache. Anyone can send an unknown key, so the look-up of a key that this process has never found is rate
// limited, and unknown keys have a cache of their own.
func (d *Directory) holderOf(ctx context.Context, key string) (x keyHolder, ok bool, err error) {
	if !wellFormed(key) {
		return x, false, nil
	}
	hash, now := sha256.Sum256([]byte(key)), d.now()
	e, known := d.secrets.known.Get(hash)
	if known && now.Sub(e.at) < cacheFor {
		return e.holder, true, nil
	}
	if at, absent := d.secrets.absent.Get(hash); absent && now.Sub(at) < cacheFor {
		return x, false, nil
	}
	find := func() error {
		x, ok, err = d.findHolder(ctx, hash[:])
		return err
	}
	if known {
		err = find()
	} else {
		err = d.lookups.run(ctx, exchangeRate, find)
	}
	if err != nil {
		return x, false, err
	}
	if !ok {
		d.secrets.known.Remove(hash)
		d.secrets.absent.Add(hash, now)
		return x, false, nil
	}
	d.secrets.known.Add(hash, secretEntry{x, now})
	d.uses.note(keyName{x.TenantID, x.ID}, now)
	return x, true, nil
}

// findHolder reads the API key that has the secret. Only the secret determines the tenant; the rest of the request does not matter.
func (d *Directory) findHolder(ctx context.Context, hash []byte) (x keyHolder, ok bool, err error) {
	rows, _ := d.db.Query(ctx, `
		SELECT id, tenant_id, tenant, status, scopes, workflows, expires_at, COALESCE(expires_at <= `+postgres.Now+`, false) AS expired
		FROM (
			SELECT k.id, k.tenant_id, t.name AS tenant, t.status, k.scopes, k.workflows,
				LEAST(k.expires_at, CASE WHEN k.hash <> $1 THEN k.previous_expires_at END) AS expires_at
			FROM api_key k
			JOIN tenant t ON t.id = k.tenant_id
			WHERE k.hash = $1 OR k.previous_hash = $1
		) k`, hash) // CollectExactlyOneRow reports the error
	x, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[keyHolder])
	if errors.Is(err, pgx.ErrNoRows) {
		return x, false, nil
	}
	return x, err == nil, err
}
