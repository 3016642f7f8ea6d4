package calendars

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// Config has the dependencies of Calendars. All members are required.
type Config struct {
	Pool       postgres.DB // it shows only the rows of the tenant that a context names
	IDs        ident.Codec
	Timings    *cohorts.Timings
	Cursors    *web.Cursor
	Operations *operations.Operations
}

// Calendars reads and changes the named calendars of tenants. It is safe for concurrent use.
type Calendars struct {
	pool    postgres.DB
	ids     ident.Codec
	timings *cohorts.Timings
	cursors *web.Cursor
}

// New returns Calendars over a pool whose database is migrated, and registers the operation that retimes a tenant's cohorts.
func New(c Config) *Calendars {
	all := &Calendars{pool: c.Pool, ids: c.IDs, timings: c.Timings, cursors: c.Cursors}
	c.Operations.Register(tzdataKind, all.rezoneStep)
	return all
}

// Params are the body of a calendar's upsert: days to leave out, and an iCalendar document (RFC 5545) whose
// all-day events are added to them.
type Params struct {
	Dates []string `json:"dates,omitempty"`
	ICS   string   `json:"ics,omitempty" empty:"yes"`

	Pre    version.Precondition `json:"-"`
	DryRun bool                 `json:"-"` // nothing is stored
}

// Calendar is a tenant's list of days. A spec that names the calendar excludes these days.
type Calendar struct {
	Name      string    `json:"name"`
	Dates     []string  `json:"dates"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	UpdatedBy string    `json:"updated_by"`
}

// revision is the version that a calendar's entity tag names: the microsecond of its last change.
func (c Calendar) revision() int64 { return c.UpdatedAt.UnixMicro() }

const (
	mostDates     = 5000 // of a calendar
	mostCalendars = 100  // of a tenant
	mostMarked    = 1000 // cohorts that an edit marks before it returns
)

const calendarColumns = `name, dates, created_at, updated_at, updated_by`

func scanCalendar(row pgx.CollectableRow) (c Calendar, err error) {
	var days []time.Time
	if err := row.Scan(&c.Name, &days, &c.CreatedAt, &c.UpdatedAt, &c.UpdatedBy); err != nil {
		return c, err
	}
	c.CreatedAt, c.UpdatedAt = c.CreatedAt.UTC(), c.UpdatedAt.UTC()
	c.Dates = make([]string, len(days))
	for i, d := range cohorts.DatesOf(days) {
		c.Dates[i] = d.String()
	}
	return c, nil
}

// days are the days that the params name, in order, each once.
func (p Params) days(now time.Time) ([]time.Time, error) {
	if len(p.Dates) > mostDates {
		return nil, tooManyDates(len(p.Dates))
	}
	var errs []error
	days := []time.Time{}
	for i, text := range p.Dates {
		d, err := calendar.ParseDate(text)
		if err != nil {
			errs = append(errs, fault.Fields(fault.Field{Pointer: "/dates/" + strconv.Itoa(i), Code: "date_syntax", Detail: err.Error()}))
			continue
		}
		days = append(days, time.Date(d.Year, d.Month, d.Day, 0, 0, 0, 0, time.UTC))
	}
	imported, err := importDays(p.ICS, now)
	if err := fault.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	days = append(days, imported...)
	slices.SortFunc(days, time.Time.Compare)
	days = slices.CompactFunc(days, time.Time.Equal)
	if len(days) > mostDates {
		return nil, tooManyDates(len(days))
	}
	return days, nil
}

func tooManyDates(n int) error {
	return fault.Fields(fault.Field{Pointer: "/dates", Code: "too_many", Detail: fmt.Sprintf("%d dates are more than %d", n, mostDates)})
}

// Put stores a tenant's calendar. From now on, schedules that name the calendar exclude its new days. made reports that the calendar is
// new. Put does not write a calendar that has these days already. A dry run returns what would be stored.
func (cs *Calendars) Put(ctx context.Context, tenant tenants.ID, name string, p Params, by string) (c Calendar, made bool, err error) {
	days, err := p.days(time.Now())
	if err := fault.Join(policy.CheckName("/calendar", "calendar", name), err); err != nil {
		return c, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, cs.pool, func(tx pgx.Tx) error {
		revision, err := lockCalendars(ctx, tx, tenant)
		if err != nil {
			return err
		}
		before, err := presentCalendar(ctx, tx, tenant, name)
		if made = errors.Is(err, pgx.ErrNoRows); err != nil && !made {
			return fmt.Errorf("read calendar: %w", err)
		}
		if err := p.Pre.Check(!made, before.revision()); err != nil {
			return err
		}
		if !made && slices.EqualFunc(before.Dates, days, func(text string, day time.Time) bool { return text == day.Format(time.DateOnly) }) {
			c = before
			return errUnchanged
		}
		if made {
			if err := roomForCalendar(ctx, tx, tenant); err != nil {
				return err
			}
		}
		if err := endEdition(ctx, tx, tenant, name, revision); err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, `
			INSERT INTO calendar (tenant_id, name, since, dates, created_at, updated_at, updated_by)
			SELECT $1, $2, $3, $4, COALESCE($5, now), now, $6
			FROM `+postgres.Now+` AS c (now)
			RETURNING `+calendarColumns, tenant, name, revision, days, nonZero(before.CreatedAt), by) // CollectExactlyOneRow reports the error
		if c, err = pgx.CollectExactlyOneRow(rows, scanCalendar); err != nil {
			return fmt.Errorf("write calendar: %w", err)
		}
		change := tenants.Change{Action: "calendar.put", Target: "calendars/" + name, After: c}
		if !made {
			change.Before = before
		}
		if err := tenants.Audit(ctx, tx, tenant, by, change); err != nil {
			return err
		}
		if p.DryRun {
			return errDryRun
		}
		return nil
	})
	if errors.Is(err, errUnchanged) || errors.Is(err, errDryRun) {
		return c, made, nil
	}
	if err != nil {
		return c, made, err
	}
	return c, made, cs.markFew(ctx, tenant)
}

// errUnchanged ends a transaction that has nothing to write.
var errUnchanged = errors.New("the calendar holds this already")

// errDryRun ends a transaction that is not to be committed.
var errDryRun = errors.New("the calendar is only shown as it would be")

func nonZero(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// lockCalendars locks the tenant's calendars until the transaction ends: no other transaction can edit one or make a cohort that names
// one. It returns the revision that the edit makes.
func lockCalendars(ctx context.Context, tx pgx.Tx, tenant tenants.ID) (revision int64, err error) {
	err = tx.QueryRow(ctx, `
		INSERT INTO calendar_revision AS r (tenant_id, revision, marked)
		VALUES ($1, 1, 1)
		ON CONFLICT (tenant_id) DO UPDATE SET revision = r.revision + 1
		RETURNING revision`, tenant).Scan(&revision)
	if err != nil {
		return 0, fmt.Errorf("lock calendars: %w", err)
	}
	return revision, nil
}

func presentCalendar(ctx context.Context, tx pgx.Tx, tenant tenants.ID, name string) (Calendar, error) {
	rows, _ := tx.Query(ctx, `SELECT `+calendarColumns+` FROM calendar WHERE tenant_id = $1 AND name = $2 AND until IS NULL`, tenant, name) // CollectExactlyOneRow reports the error
	return pgx.CollectExactlyOneRow(rows, scanCalendar)
}

func roomForCalendar(ctx context.Context, tx pgx.Tx, tenant tenants.ID) error {
	var n int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM calendar WHERE tenant_id = $1 AND until IS NULL`, tenant).Scan(&n); err != nil {
		return fmt.Errorf("count calendars: %w", err)
	}
	if n >= mostCalendars {
		return tenants.Exceeded("calendars", mostCalendars, n)
	}
	return nil
}

// endEdition ends the present edition of a calendar at a revision, and deletes earlier editions by which no cohort is timed any more.
func endEdition(ctx context.Context, tx pgx.Tx, tenant tenants.ID, name string, revision int64) error {
	var b pgx.Batch
	b.Queue(`UPDATE calendar SET until = $3, ended_at = `+postgres.Now+` WHERE tenant_id = $1 AND name = $2 AND until IS NULL`, tenant, name, revision)
	b.Queue(`
		DELETE FROM calendar e
		WHERE tenant_id = $1 AND name = $2 AND ended_at < `+postgres.Now+` - interval '1 minute' AND NOT EXISTS (
			SELECT FROM cohort c
			WHERE c.tenant_id = $1 AND c.calendars IS NOT NULL AND $2 = ANY(c.calendars) AND c.revision < e.until AND c.due_at IS NOT NULL)`, tenant, name)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("end the edition before: %w", err)
	}
	return nil
}

// Get returns one of a tenant's calendars.
func (cs *Calendars) Get(ctx context.Context, tenant tenants.ID, name string) (Calendar, error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	rows, _ := cs.pool.Query(ctx, `SELECT `+calendarColumns+` FROM calendar WHERE tenant_id = $1 AND name = $2 AND until IS NULL`, tenant, name) // CollectExactlyOneRow reports the error
	c, err := pgx.CollectExactlyOneRow(rows, scanCalendar)
	if errors.Is(err, pgx.ErrNoRows) {
		return c, noCalendar(name)
	}
	return c, err
}

func noCalendar(name string) error { return fault.NotFound("no calendar %q", name) }

// List returns a page of a tenant's calendars by name, and the cursor of the next page, if there is one.
func (cs *Calendars) List(ctx context.Context, tenant tenants.ID, limit int, cursor string) (page []Calendar, next *string, err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	after := ""
	paging, err := cs.cursors.Page(int32(tenant), "calendars", limit, cursor, &after)
	if err != nil {
		return nil, nil, err
	}
	rows, _ := cs.pool.Query(ctx, `
		SELECT `+calendarColumns+`
		FROM calendar
		WHERE tenant_id = $1 AND name > $2 AND until IS NULL
		ORDER BY name
		LIMIT $3`, tenant, after, paging.Rows()) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, scanCalendar)
	if err != nil {
		return nil, nil, err
	}
	return web.Cut(paging, found, false, func(one Calendar) string { return one.Name })
}

// Delete deletes a calendar that no schedule names. It returns a conflict for a calendar that is in use.
func (cs *Calendars) Delete(ctx context.Context, tenant tenants.ID, name string, pre version.Precondition) error {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	return pgx.BeginFunc(ctx, cs.pool, func(tx pgx.Tx) error {
		revision, err := lockCalendars(ctx, tx, tenant)
		if err != nil {
			return err
		}
		before, err := presentCalendar(ctx, tx, tenant, name)
		if errors.Is(err, pgx.ErrNoRows) {
			return noCalendar(name)
		}
		if err != nil {
			return fmt.Errorf("read calendar: %w", err)
		}
		if err := pre.Check(true, before.revision()); err != nil {
			return err
		}
		cohorts, users, err := usersOf(ctx, tx, tenant, name)
		if err != nil {
			return err
		}
		if users > 0 {
			f := fault.Conflict("in_use", "%d schedules name the calendar %q", users, name)
			f.Extra = map[string]any{"schedules": users, "cohorts": cohorts}
			return f
		}
		if err := tenants.Audit(ctx, tx, tenant, "", tenants.Change{Action: "calendar.delete", Target: "calendars/" + name, Before: before}); err != nil {
			return err
		}
		return endEdition(ctx, tx, tenant, name, revision)
	})
}

// usersOf counts the schedules that name a calendar, and the cohorts that contain some of them.
func usersOf(ctx context.Context, tx pgx.Tx, tenant tenants.ID, name string) (cohorts, users int64, err error) {
	err = tx.QueryRow(ctx, `
		SELECT count(*) FILTER (WHERE n > 0), COALESCE(sum(n), 0)::bigint + (
			SELECT count(*)
			FROM schedule
			WHERE tenant_id = $1 AND cohort_id IS NULL AND spec LIKE '%"named":%' AND (spec::jsonb #> '{exclude,named}') ? $2)
		FROM cohort c
		CROSS JOIN LATERAL (SELECT count(*) FROM member m WHERE m.cohort_id = c.id AND m.tenant_id = $1) m (n)
		WHERE c.tenant_id = $1 AND c.calendars IS NOT NULL AND $2 = ANY(c.calendars)`, tenant, name).Scan(&cohorts, &users)
	if err != nil {
		return 0, 0, fmt.Errorf("look who uses the calendar: %w", err)
	}
	return cohorts, users, nil
}
