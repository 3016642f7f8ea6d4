package main

import (
	"context"
	"fmt"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/dispatch/upkeep"
	"github.com/carillonhq/carillon/internal/keyset"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/embedded"
	"github.com/carillonhq/carillon/migrations"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
)

type doctorSettings struct {
	DatabaseURL databaseURL `env:"DATABASE_URL" secret:"true" flag:"database-url" value:"URL" help:"the PostgreSQL to examine; without it the doctor examines what carillon dev needs"`
	APIURL      databaseURL `env:"CARILLON_API_DATABASE_URL" secret:"true" help:"the database user of tenants' requests, if carillon serve has one, to check that policies apply to it"`
	Keyset      sealing     `env:"CARILLON_KEYSET" secret:"true" help:"the keys with which carillon serve encrypts secrets, to check that they fit the database"`
}

func (p program) doctor() *cobra.Command {
	var asJSON, deep bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Report what is wrong, and what to do",
		Long: `Examines what Carillon needs: PostgreSQL's programs, the database that DATABASE_URL names,
its version and schema, the isolation of tenants, the clocks and the time zone data. Each
problem comes with its remedy. The doctor changes nothing. It exits 1 if something failed.`,
		Example: `  carillon doctor
  DATABASE_URL=postgres://carillon:secret@db:5432/carillon carillon doctor --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := read[doctorSettings](p, cmd)
			if err != nil {
				return err
			}
			limit := 30 * time.Second
			if deep {
				limit = deepLimit
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), limit)
			defer cancel()
			return p.report(examine(ctx, s, deep), asJSON)
		},
	}
	flags[doctorSettings](cmd)
	jsonFlags(cmd, &asJSON)
	cmd.Flags().BoolVar(&deep, "deep", false, "also read the whole record for broken promises, which can take minutes")
	return cmd
}

// finding is the result of one check. Remedy says what to do if the status is not ok.
type finding struct {
	Name   string `json:"name"`
	Status string `json:"status"` // ok, warning or failed
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

func fine(name, detail string, args ...any) finding {
	return finding{Name: name, Status: "ok", Detail: fmt.Sprintf(detail, args...)}
}

func (f finding) warn(remedy string) finding {
	f.Status, f.Remedy = "warning", remedy
	return f
}

func (f finding) fail(remedy string) finding {
	f.Status, f.Remedy = "failed", remedy
	return f
}

func (p program) report(findings []finding, asJSON bool) error {
	healthy := true
	for _, f := range findings {
		healthy = healthy && f.Status != "failed"
	}
	if asJSON {
		err := printJSON(p.stdout, map[string]any{"ok": healthy, "findings": findings})
		if err != nil {
			return err
		}
	} else {
		for _, f := range findings {
			fmt.Fprintf(p.stdout, "%-8s %-10s %s\n", f.Status, f.Name, f.Detail)
			if f.Remedy != "" {
				fmt.Fprintf(p.stdout, "%19s → %s\n", "", f.Remedy)
			}
		}
	}
	if !healthy {
		return errSaid
	}
	return nil
}

// deepLimit bounds a run with --deep.
const deepLimit = 10 * time.Minute

func examine(ctx context.Context, s doctorSettings, deep bool) []finding {
	url, k := string(s.DatabaseURL), s.Keyset.keyset
	findings := []finding{
		fine("carillon", "version %s, %s", thisEdition().Version, thisEdition().Go),
		fine("tzdata", "%s, with %d zones; the data of this machine is not used", calendar.InForce().Version(), len(calendar.InForce().Names())),
	}
	if url == "" {
		return append(findings, examinePrograms(ctx), examineFolder(),
			fine("database", "DATABASE_URL is not set, so no database is examined; carillon dev starts its own"))
	}
	pool, err := postgres.Open(ctx, url, postgres.Options{Name: "carillon doctor", MaxConns: 2, StatementTimeout: deepLimit})
	if err != nil {
		return append(findings, fine("database", "%v", err).fail("start that server or correct DATABASE_URL; `psql \"$DATABASE_URL\"` must work from here"))
	}
	defer pool.Close()
	findings = append(findings, examineServer(ctx, pool), examineLogging(ctx, pool), examineSchema(ctx, pool), examineLocks(ctx, pool))
	findings = append(findings, examineIsolation(ctx, pool, string(s.APIURL))...)
	findings = append(findings, examineClock(ctx, pool), examineSecrets(ctx, pool, k))
	return append(findings, examinePromises(ctx, pool, deep)...)
}

// examinePromises returns a finding for each promise that stored rows contradict, and one finding for all promises that hold.
func examinePromises(ctx context.Context, pool *pgxpool.Pool, deep bool) (findings []finding) {
	all, err := upkeep.Scan(ctx, pool, deep)
	if err != nil {
		return []finding{fine("promises", "%v", err).fail("bring the schema up to date first: carillon migrate")}
	}
	kept := 0
	for _, b := range all {
		if b.Rows == 0 {
			kept++
			continue
		}
		findings = append(findings, fine("promises", "%d %s", b.Rows, b.Meaning).warn("check that processes with the roles sweep and dispatch run and reach the database; if this remains, report "+b.Name))
	}
	return append(findings, fine("promises", "%d of %d examined promises are kept", kept, len(all)))
}

func examinePrograms(ctx context.Context) finding {
	dir, version, err := embedded.Find(ctx)
	if err != nil {
		return fine("postgres", "no PostgreSQL is installed").warn("carillon dev downloads one; or install it (Debian and Ubuntu: apt-get install postgresql; macOS: brew install postgresql@17), or set DATABASE_URL")
	}
	return fine("postgres", "PostgreSQL %s in %s, for carillon dev", version, dir)
}

func examineFolder() finding {
	dir, err := embedded.DefaultDir()
	if err != nil {
		return fine("data", "%v", err).warn("name a folder: carillon dev --data DIR")
	}
	return fine("data", "carillon dev keeps its data in %s", dir)
}

const oldestServer = 150000

func examineServer(ctx context.Context, pool *pgxpool.Pool) finding {
	var version string
	var number int
	err := pool.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('server_version_num')::int`).Scan(&version, &number)
	if err != nil {
		return fine("database", "%v", err).fail("see the server's log")
	}
	c := pool.Config().ConnConfig
	f := fine("database", "PostgreSQL %s at %s:%d, database %q as %q", version, c.Host, c.Port, c.Database, c.User)
	if number < oldestServer {
		return f.fail("Carillon needs PostgreSQL 15 or newer")
	}
	return f
}

// examineLogging checks whether PostgreSQL logs data of tenants: parameters of statements have payloads and secrets, and details of
// errors have rows.
func examineLogging(ctx context.Context, pool *pgxpool.Pool) finding {
	var statements, parameters, verbosity string
	err := pool.QueryRow(ctx, `
		SELECT current_setting('log_min_duration_statement'), current_setting('log_parameter_max_length'), current_setting('log_error_verbosity')`).
		Scan(&statements, &parameters, &verbosity)
	if err != nil {
		return fine("logging", "%v", err).fail("see the server's log")
	}
	f := fine("logging", "log_min_duration_statement %s, log_parameter_max_length %s, log_error_verbosity %s", statements, parameters, verbosity)
	if statements != "-1" && parameters != "0" {
		return f.warn("set log_parameter_max_length = 0 in PostgreSQL, or its log has payloads and secrets of tenants")
	}
	return f
}

func examineSchema(ctx context.Context, pool *pgxpool.Pool) finding {
	version, err := migrations.Version(ctx, pool)
	if err != nil {
		return fine("schema", "%v", err).fail("grant this user SELECT on the tables of the schema, or use the user that migrated it")
	}
	pending, err := migrations.Pending(ctx, pool)
	if err != nil {
		return fine("schema", "%v", err).fail("see the server's log")
	}
	switch f := fine("schema", "version %d; this program needs %d", version, migrations.Latest()); {
	case pending > 0:
		return f.fail("run: carillon migrate")
	case version > migrations.Latest():
		return f.warn("a newer Carillon has migrated this database: upgrade this program soon")
	default:
		return f
	}
}

func examineSecrets(ctx context.Context, pool *pgxpool.Pool, k *keyset.Keyset) finding {
	s, err := push.Sealings(ctx, pool, k)
	if err != nil {
		return fine("secrets", "%v", err).fail("bring the schema up to date first: carillon migrate")
	}
	f := fine("secrets", "secrets and headers of endpoints: %d are encrypted, %d are in the clear", s.Sealed, s.Clear)
	switch {
	case s.Unreadable > 0 && k == nil:
		return f.fail("set CARILLON_KEYSET to the keyset of carillon serve: without it nothing is pushed to these endpoints")
	case s.Unreadable > 0:
		f.Detail += fmt.Sprintf(", and %d cannot be decrypted", s.Unreadable)
		return f.fail("put the missing key back into CARILLON_KEYSET, or rotate those secrets (POST /v1/endpoints/{name}/secrets) and PUT those headers again: until then ticks to these endpoints are held")
	case k == nil:
		return f.warn("set CARILLON_KEYSET to the output of carillon keyset, so that secrets are encrypted")
	case s.Clear > 0:
		return f.warn("the next write of an endpoint encrypts them: PUT it unchanged, or rotate its secret")
	}
	return f
}

// tolerable is the difference between the clocks of this machine and of the database above which reported lateness is misleading. Only the
// database's clock decides which ticks are due.
const tolerable = 500 * time.Millisecond

func examineClock(ctx context.Context, pool *pgxpool.Pool) finding {
	best := time.Hour
	var skew time.Duration
	for range 3 {
		var there time.Time
		sent := time.Now()
		if err := pool.QueryRow(ctx, `SELECT `+postgres.Now).Scan(&there); err != nil {
			return fine("clock", "%v", err).fail("see the server's log")
		}
		trip := time.Since(sent)
		if trip < best {
			best, skew = trip, there.Sub(sent.Add(trip/2))
		}
	}
	f := fine("clock", "the database's clock is %s from this machine's (a round trip takes %s)", skew.Abs().Round(time.Millisecond), best.Round(10*time.Microsecond))
	if skew.Abs() > tolerable+best {
		return f.warn("run an NTP client on both (timedatectl set-ntp true): ticks fire by the database's clock, and this machine reports wrong lateness")
	}
	return f
}
