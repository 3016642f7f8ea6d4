package push

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/keyset"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// A secret is stored in one of two forms: in the clear, as its secretSize bytes, or sealed, which is longer: sealedMark, and the secret
// sealed by the keyset for its endpoint only.
const (
	secretSize   = 32
	secretPrefix = "whsec_"
	sealedMark   = 1
	validSecrets = 2 // at a time
)

func newSecret() []byte {
	secret := make([]byte, secretSize)
	_, _ = rand.Read(secret) // it never fails
	return secret
}

// shownSecret returns a secret in the form of Standard Webhooks, as its owner gets it.
func shownSecret(secret []byte) string {
	return secretPrefix + base64.StdEncoding.EncodeToString(secret)
}

// secretPlace returns the place that a secret is sealed for: it cannot be opened for another.
func secretPlace(tenant tenants.ID, endpoint string) []byte {
	return fmt.Appendf(nil, "endpoint %d %s", tenant, endpoint)
}

// sealSecret returns a secret as it is stored.
func sealSecret(k *keyset.Keyset, tenant tenants.ID, endpoint string, secret []byte) ([]byte, error) {
	if k == nil {
		return secret, nil
	}
	sealed, err := k.Seal(secret, secretPlace(tenant, endpoint))
	if err != nil {
		return nil, fmt.Errorf("seal a secret: %w", err)
	}
	return append([]byte{sealedMark}, sealed...), nil
}

// openSecret returns the secret that is stored.
func openSecret(k *keyset.Keyset, tenant tenants.ID, endpoint string, stored []byte) ([]byte, error) {
	switch {
	case len(stored) == secretSize:
		return stored, nil
	case len(stored) == 0 || stored[0] != sealedMark:
		return nil, errors.New("the secret is in a form that this version does not know")
	case k == nil:
		return nil, errors.New("the secret is sealed, and there is no keyset")
	}
	secret, err := k.Open(stored[1:], secretPlace(tenant, endpoint))
	if err != nil {
		return nil, errors.New("the secret is not sealed by a key of the keyset") // the library's error says no more
	}
	return secret, nil
}

// resealed returns a stored secret sealed by the current key. A secret that cannot be opened stays as it is, because a keyset with its
// key may be restored.
func resealed(k *keyset.Keyset, tenant tenants.ID, endpoint string, stored []byte) ([]byte, error) {
	secret, err := openSecret(k, tenant, endpoint, stored)
	if err != nil {
		return stored, nil
	}
	return sealSecret(k, tenant, endpoint, secret)
}

// openSecrets returns those of an endpoint's secrets that can be opened. It logs once for each endpoint that one cannot.
func (es *Endpoints) openSecrets(tenant tenants.ID, endpoint string, stored [][]byte) [][]byte {
	var secrets [][]byte
	for _, one := range stored {
		secret, err := openSecret(es.keyset, tenant, endpoint, one)
		if err == nil {
			secrets = append(secrets, secret)
			continue
		}
		es.logUnreadable(tenant, endpoint, err)
	}
	return secrets
}

// logUnreadable logs once for each endpoint that a secret or a header cannot be opened.
func (es *Endpoints) logUnreadable(tenant tenants.ID, endpoint string, err error) {
	if _, logged := es.unreadable.LoadOrStore(EndpointName{tenant, endpoint}, true); !logged {
		es.log.Error("cannot open a secret or a header of an endpoint", "tenant", tenant, "endpoint", endpoint, "error", err)
	}
}

// storedSecrets locks an endpoint, and returns its secrets and headers sealed by the current key; no secrets if there is no such
// endpoint.
func (es *Endpoints) storedSecrets(ctx context.Context, tx pgx.Tx, tenant tenants.ID, name string) (secrets [][]byte, headers map[string]string, err error) {
	err = tx.QueryRow(ctx, `
		SELECT secrets, headers
		FROM endpoint
		WHERE tenant_id = $1 AND name = $2
		FOR UPDATE`, tenant, name).Scan(&secrets, &headers)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read secrets: %w", err)
	}
	for i, one := range secrets {
		if secrets[i], err = resealed(es.keyset, tenant, name, one); err != nil {
			return nil, nil, err
		}
	}
	headers, err = resealedValues(es.keyset, tenant, name, headers)
	return secrets, headers, err
}

// rotationGap is how long after a rotation the next one needs force. Receivers change over in it, and a client that did not
// get the answer to a rotation does not end the secret that they use.
const rotationGap = time.Hour

// RotateSecret gives an endpoint another secret and returns the endpoint with it. Ticks are signed with it and with the one before; an
// older one is no longer valid. So another rotation within rotationGap is refused without force. The endpoint of a replayed request has
// no secret, because it is stored without it.
func (es *Endpoints) RotateSecret(ctx context.Context, tenant tenants.ID, name string, force bool, request once.Request) (e Endpoint, replayed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	var secret string
	err = pgx.BeginFunc(ctx, es.api, func(tx pgx.Tx) (err error) {
		e, replayed, err = once.Do(ctx, tx, int32(tenant), request, func() (Endpoint, error) {
			fresh, err := es.rotate(ctx, tx, tenant, name, force)
			secret, fresh.Secret = fresh.Secret, ""
			return fresh, err
		})
		return err
	})
	e.Secret = secret
	return e, replayed, err
}

func (es *Endpoints) rotate(ctx context.Context, tx pgx.Tx, tenant tenants.ID, name string, force bool) (e Endpoint, err error) {
	secrets, headers, err := es.storedSecrets(ctx, tx, tenant, name)
	if err != nil {
		return e, err
	}
	if secrets == nil {
		return e, noEndpoint(name)
	}
	if !force {
		if err := checkRotated(ctx, tx, tenant, name); err != nil {
			return e, err
		}
	}
	secret := newSecret()
	sealed, err := sealSecret(es.keyset, tenant, name, secret)
	if err != nil {
		return e, err
	}
	secrets = slices.Insert(secrets, 0, sealed)
	rows, _ := tx.Query(ctx, `
		UPDATE endpoint
		SET secrets = $3, headers = $4, rotated_at = `+postgres.Now+`, updated_at = `+postgres.Now+`
		WHERE tenant_id = $1 AND name = $2
		RETURNING `+endpointColumns, tenant, name, secrets[:min(len(secrets), validSecrets)], headers) // CollectExactlyOneRow reports the error
	if e, err = pgx.CollectExactlyOneRow(rows, scanEndpoint); err != nil {
		return e, fmt.Errorf("rotate a secret: %w", err)
	}
	e.Secret = shownSecret(secret)
	return e, tenants.Audit(ctx, tx, tenant, "", tenants.Change{Action: "endpoint.rotate", Target: "endpoints/" + name})
}

// checkRotated refuses the rotation of an endpoint that was rotated within rotationGap. The endpoint is locked.
func checkRotated(ctx context.Context, tx pgx.Tx, tenant tenants.ID, name string) error {
	var lately bool
	err := tx.QueryRow(ctx, `
		SELECT COALESCE(rotated_at > `+postgres.Now+` - $3::interval, false)
		FROM endpoint
		WHERE tenant_id = $1 AND name = $2`, tenant, name, rotationGap).Scan(&lately)
	if err != nil {
		return fmt.Errorf("read when a secret was rotated: %w", err)
	}
	if lately {
		return fault.Conflict("rotated_lately", "the secret of endpoint %q was rotated less than an hour ago: another rotation now would end the previous secret, which receivers may still use; add ?force=true to rotate it anyway", name)
	}
	return nil
}

// Sealing counts the secrets of all endpoints, and the values of their headers, by the form in which they are stored.
type Sealing struct {
	Clear, Sealed int
	Unreadable    int // of the sealed ones: those whose key is missing
}

// Sealings counts the secrets and headers of all tenants' endpoints, for operators.
func Sealings(ctx context.Context, db postgres.DB, k *keyset.Keyset) (s Sealing, err error) {
	rows, err := db.Query(ctx, `
		SELECT tenant_id, name, unnest(secrets), '', ''
		FROM endpoint
		UNION ALL
		SELECT e.tenant_id, e.name, ''::bytea, h.key, h.value
		FROM endpoint e
		CROSS JOIN LATERAL jsonb_each_text(e.headers) h`)
	if err != nil {
		return s, err
	}
	var tenant tenants.ID
	var name, header, value string
	var stored []byte
	_, err = pgx.ForEachRow(rows, []any{&tenant, &name, &stored, &header, &value}, func() error {
		inClear := len(stored) == secretSize
		var err error
		if header == "" {
			_, err = openSecret(k, tenant, name, stored)
		} else {
			inClear = !strings.HasPrefix(value, sealedValue)
			_, err = openValue(k, valuePlace(tenant, name, header), value)
		}
		switch {
		case inClear:
			s.Clear++
		case err != nil:
			s.Unreadable++
			fallthrough
		default:
			s.Sealed++
		}
		return nil
	})
	return s, err
}
