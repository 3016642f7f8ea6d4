package subjects

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// writeTimeout is how long a change of a key may take.
const writeTimeout = 30 * time.Second

// Config is what Subjects stands on. All members are required.
type Config struct {
	Pool      postgres.DB // it shows only the rows of the tenant that a context names
	Schedules *schedules.Schedules
	Forget    Forget
	Secret    []byte // the key of hashes, which reveal nothing of what was hashed
	Quotas    func(ctx context.Context, tenant tenants.ID) (tenants.Quotas, error)
	Cursors   *web.Cursor
}

// Subjects reads, renames and erases keys over all workflows. It is safe for concurrent use.
type Subjects struct {
	pool    postgres.DB
	retime  func(ctx context.Context, tx pgx.Tx, tenant tenants.ID, key, zone, by string) (*operations.Answer, error)
	forget  Forget
	secret  []byte
	quotas  func(ctx context.Context, tenant tenants.ID) (tenants.Quotas, error)
	cursors *web.Cursor
}

// New returns Subjects over a pool whose database is migrated.
func New(c Config) *Subjects {
	return &Subjects{pool: c.Pool, retime: c.Schedules.RetimeKey, forget: c.Forget, secret: c.Secret, quotas: c.Quotas, cursors: c.Cursors}
}

// QuietHours are when a key is not to be disturbed: from From on and before To, as clocks in its zone show them ("22:00").
// Then says what becomes of ticks inside: defer (the last of them waits until the hours end), which is the default, or
// skip.
type QuietHours struct {
	From string `json:"from"`
	To   string `json:"to"`
	Then string `json:"then,omitempty"`
}

// KeyParams are the body of a profile's upsert. Without quiet hours there are none.
type KeyParams struct {
	Timezone   string      `json:"timezone"`
	QuietHours *QuietHours `json:"quiet_hours,omitempty" null:"yes"`
}

// Key is the profile of a key over all workflows: what schedules whose zone is @key are timed by.
type Key struct {
	Key        string      `json:"key"`
	Timezone   string      `json:"timezone"`
	QuietHours *QuietHours `json:"quiet_hours"`
	Version    int32       `json:"version"`
	CreatedAt  time.Time   `json:"created_at"`
	UpdatedAt  time.Time   `json:"updated_at"`
	UpdatedBy  string      `json:"updated_by"`
}

// KeyRetiming is a profile that many schedules follow, and the operation that retimes them.
type KeyRetiming struct {
	Key
	Operation operations.Answer `json:"operation"`
}

const (
	deferQuiet = "defer"
	skipQuiet  = "skip"
)

// read checks a profile; faults of all its members are joined.
func (p KeyParams) read() (want cohorts.Profile, err error) {
	want.Zone = p.Timezone
	var errs []error
	switch {
	case p.Timezone == "":
		errs = append(errs, fault.Invalid("/timezone", "a profile names the time zone of its key"))
	case cohorts.FollowsKey(calendar.Spec{Timezone: p.Timezone}):
		errs = append(errs, fault.Invalid("/timezone", "@key follows the profile: name a zone such as Europe/Berlin"))
	default:
		_, err := calendar.Compile(calendar.Spec{Timezone: p.Timezone, Cron: calendar.StringList{"@daily"}}, calendar.Context{})
		if faults, ok := errors.AsType[calendar.Faults](err); ok {
			errs = append(errs, fault.Fields(fault.Field{Pointer: "/timezone", Code: faults[0].Code, Detail: faults[0].Detail}))
		} else if err != nil {
			return want, err
		}
	}
	if p.QuietHours == nil {
		return want, fault.Join(errs...)
	}
	q := *p.QuietHours
	from, fromErr := timeOfDay("/quiet_hours/from", q.From)
	to, toErr := timeOfDay("/quiet_hours/to", q.To)
	errs = append(errs, fromErr, toErr)
	if fromErr == nil && toErr == nil && from == to {
		errs = append(errs, fault.Invalid("/quiet_hours/to", "quiet hours end at another time than they begin at"))
	}
	if q.Then != "" && q.Then != deferQuiet && q.Then != skipQuiet {
		errs = append(errs, fault.Invalid("/quiet_hours/then", "%q is neither defer nor skip", q.Then))
	}
	want.Quiet = calendar.Quiet{From: from, To: to, Skip: q.Then == skipQuiet}
	return want, fault.Join(errs...)
}

// timeOfDay reads a time such as 22:00 as seconds of the day.
func timeOfDay(pointer, text string) (int, error) {
	t, err := time.Parse("15:04", text)
	if err != nil || len(text) != len("15:04") {
		return 0, fault.Invalid(pointer, "%q is not a time of day such as 22:00", text)
	}
	return t.Hour()*3600 + t.Minute()*60, nil
}

func timeOfDayText(sec int32) string { return fmt.Sprintf("%02d:%02d", sec/3600, sec/60%60) }

// storedKey is a row of key_profile.
type storedKey struct {
	Key string
	cohorts.StoredProfile
	Version   int32
	CreatedAt time.Time
	UpdatedAt time.Time
	UpdatedBy string
}

const keyColumns = `kp.key, ` + cohorts.ProfileColumns + `, kp.version, kp.created_at, kp.updated_at, kp.updated_by`

func (s *storedKey) shown() Key {
	k := Key{
		Key: s.Key, Timezone: *s.KeyZone, Version: s.Version,
		CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC(), UpdatedBy: s.UpdatedBy,
	}
	if s.QuietFrom != nil {
		k.QuietHours = &QuietHours{From: timeOfDayText(*s.QuietFrom), To: timeOfDayText(*s.QuietTo), Then: deferQuiet}
		if *s.QuietSkip {
			k.QuietHours.Then = skipQuiet
		}
	}
	return k
}

// readKey is the stored profile of a key; nil where there is none.
func readKey(ctx context.Context, db postgres.DB, tenant tenants.ID, key string) (*storedKey, error) {
	rows, _ := db.Query(ctx, `SELECT `+keyColumns+` FROM key_profile kp WHERE tenant_id = $1 AND key = $2`, tenant, key) // CollectExactlyOneRow reports the error
	k, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[storedKey])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the profile of a key: %w", err)
	}
	return k, nil
}

// Key returns the profile of a key.
func (ss *Subjects) Key(ctx context.Context, tenant tenants.ID, key string) (Key, error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	k, err := readKey(ctx, ss.pool, tenant, key)
	if err != nil {
		return Key{}, err
	}
	if k == nil {
		return Key{}, fault.NotFound("key %q has no profile", key)
	}
	return k.shown(), nil
}

// PutKey stores the profile of a key, and retimes the schedules that follow it in the same transaction. If they are many, it
// begins an operation that retimes them, and returns it. made reports that there was no profile. A profile that is stored already
// is not written again.
func (ss *Subjects) PutKey(ctx context.Context, tenant tenants.ID, key string, p KeyParams, by string, pre version.Precondition) (k Key, made bool, op *operations.Answer, err error) {
	want, err := p.read()
	if err := fault.Join(policy.CheckKey("/key", key), err); err != nil {
		return k, false, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err = postgres.Retry(ctx, func() error {
		op = nil
		return pgx.BeginFunc(ctx, ss.pool, func(tx pgx.Tx) error {
			if err := cohorts.LockKeys(ctx, tx, tenant, cohorts.ToChange, key); err != nil {
				return err
			}
			was, err := readKey(ctx, tx, tenant, key)
			if err != nil {
				return err
			}
			version := int64(0)
			if was != nil {
				version = int64(was.Version)
			}
			if err := pre.Check(was != nil, version); err != nil {
				return err
			}
			if was == nil {
				if err := ss.roomForKey(ctx, tx, tenant); err != nil {
					return err
				}
			}
			if was != nil && was.Profile() == want {
				k, made = was.shown(), false
				return nil
			}
			if k, err = writeKey(ctx, tx, tenant, key, want, by); err != nil {
				return err
			}
			made = was == nil
			change := tenants.Change{Action: "key.put", Target: "keys/" + url.PathEscape(key), Key: key, After: k}
			if !made {
				change.Before = was.shown()
			}
			if err := tenants.Audit(ctx, tx, tenant, by, change); err != nil {
				return err
			}
			op, err = ss.retime(ctx, tx, tenant, k.Key, k.Timezone, by)
			return err
		})
	})
	return k, made, op, err
}

// roomForKey refuses a profile more where a tenant has as many as it may have schedules. Two that are made at once may be
// one too many.
func (ss *Subjects) roomForKey(ctx context.Context, tx pgx.Tx, tenant tenants.ID) error {
	q, err := ss.quotas(ctx, tenant)
	if err != nil {
		return err
	}
	n, err := forecast.Count(ctx, tx, tenant, forecast.AllKeys)
	if err == nil && n >= q.Schedules {
		return tenants.Exceeded("keys", q.Schedules, n)
	}
	return err
}

func writeKey(ctx context.Context, tx pgx.Tx, tenant tenants.ID, key string, p cohorts.Profile, by string) (Key, error) {
	w := p.Stored()
	rows, _ := tx.Query(ctx, `
		INSERT INTO key_profile AS kp (tenant_id, key, timezone, quiet_from, quiet_to, quiet_skip, created_at, updated_at, updated_by)
		VALUES ($1, $2, $3, $4, $5, $6, `+postgres.TxNow+`, `+postgres.TxNow+`, $7)
		ON CONFLICT (tenant_id, key) DO UPDATE
		SET timezone = excluded.timezone, quiet_from = excluded.quiet_from, quiet_to = excluded.quiet_to, quiet_skip = excluded.quiet_skip,
			version = kp.version + 1, updated_at = excluded.updated_at, updated_by = excluded.updated_by
		RETURNING `+keyColumns, tenant, key, w.KeyZone, w.QuietFrom, w.QuietTo, w.QuietSkip, by) // CollectExactlyOneRow reports the error
	stored, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[storedKey])
	if err != nil {
		return Key{}, fmt.Errorf("write the profile of a key: %w", err)
	}
	return stored.shown(), nil
}

// Keys returns a page of the profiles of a tenant's keys that begin with a prefix, by key, and the cursor of the next
// page, if there is one.
func (ss *Subjects) Keys(ctx context.Context, tenant tenants.ID, prefix string, limit int, cursor string) (page []Key, next *string, err error) {
	if prefix != "" {
		if err := policy.CheckKey("/key_prefix", prefix); err != nil {
			return nil, nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	name := fmt.Sprintf("keys %q", prefix)
	after := ""
	paging, err := ss.cursors.Page(int32(tenant), name, limit, cursor, &after)
	if err != nil {
		return nil, nil, err
	}
	args := []any{tenant, after, prefix, paging.Rows()}
	below := ""
	if past := schedules.PastPrefix(prefix); past != "" {
		below, args = "AND key < $5", append(args, past)
	}
	rows, _ := ss.pool.Query(ctx, `
		SELECT `+keyColumns+`
		FROM key_profile kp
		WHERE tenant_id = $1 AND key > $2 AND key >= $3 `+below+`
		ORDER BY key
		LIMIT $4`, args...) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[storedKey])
	if err != nil {
		return nil, nil, fmt.Errorf("list keys: %w", err)
	}
	found, next, err = web.Cut(paging, found, false, func(k *storedKey) string { return k.Key })
	page = make([]Key, 0, len(found))
	for _, k := range found {
		page = append(page, k.shown())
	}
	return page, next, err
}
