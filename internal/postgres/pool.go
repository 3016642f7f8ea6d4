package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/internal/sabotage"
)

// Options configure a pool beside its URL. The zero value is usable.
type Options struct {
	Name             string          // application_name in pg_stat_activity; "" is "carillon"
	MaxConns         int32           // 0 is pgx's default, or the URL's pool_max_conns
	StatementTimeout time.Duration   // 0 is 30 s
	CallTimeout      time.Duration   // of a call whose context has no deadline; 0 is a little more than StatementTimeout
	Unlimited        bool            // no time limit on statements and calls, and a longer one on connecting: for migrations
	Tracer           pgx.QueryTracer // nil is none
	Role             string          // that queries run as, and that the login role is a member of; "" is the login role
	Cluster          *Cluster        // shared by all pools of a process; nil: the pool's own
}

// The limits of a session, unless its URL sets others. In a call without a deadline PostgreSQL ends a statement before the client does.
// The limit of a lock wait is only a little longer than that of a request: a longer wait means that something is stuck.
const (
	statementTimeout = 30 * time.Second
	idleInTxTimeout  = 60 * time.Second
	lockTimeout      = 15 * time.Second
	connectTimeout   = time.Second      // so that a process soon tries another host
	patientTimeout   = 10 * time.Second // of a pool that is Unlimited: it has nobody to answer
	answerSlack      = 5 * time.Second  // how long after PostgreSQL's own limit the client ends a statement
)

// readOnlyTransaction is the SQLSTATE of a write to a read-only server, such as one that has become a standby.
const readOnlyTransaction = "25006"

// Open returns a pool after one successful ping. It waits some seconds for a server that does not answer. Its sessions use UTC, and have
// time limits on statements, on locks and on idle transactions. A parameter in the URL overrides these defaults. The error is one sentence
// and never contains the password.
func Open(ctx context.Context, rawURL string, o Options) (*pgxpool.Pool, error) {
	if o.Cluster == nil {
		o.Cluster = NewCluster()
	}
	config, err := parse(rawURL, o)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open a pool of connections: %w", err)
	}
	o.Cluster.add(ctx, pool)
	if err := firstPing(ctx, pool); err != nil {
		pool.Close()
		return nil, unreachable(config.ConnConfig, err)
	}
	return pool, nil
}

// pingFor is how long Open goes on to ask a server that does not answer in time.
const pingFor = 5 * connectTimeout

// firstPing pings the server. It tries again if the time ran out: on a busy machine a first connection may exceed its limit.
func firstPing(ctx context.Context, pool *pgxpool.Pool) error {
	for began := time.Now(); ; {
		err := pool.Ping(ctx)
		if !pgconn.Timeout(err) || ctx.Err() != nil || time.Since(began) >= pingFor {
			return err
		}
	}
}

func parse(rawURL string, o Options) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(rawURL)
	if err != nil {
		return nil, badURL(rawURL, err)
	}
	if strings.Contains(rawURL, "://") && !readable(rawURL) {
		return nil, errUnreadable
	}
	params := config.ConnConfig.RuntimeParams
	setDefault(params, "application_name", "carillon")
	if o.Name != "" {
		params["application_name"] = o.Name
	}
	if o.Role != "" {
		params["role"] = o.Role
	}
	if o.Unlimited {
		params["statement_timeout"], params["idle_in_transaction_session_timeout"] = "0", "0"
	}
	setDefault(params, "timezone", "UTC")
	setDefault(params, "max_parallel_workers_per_gather", "0") // starting workers takes longer than our queries
	setDefault(params, "statement_timeout", millis(cmp.Or(o.StatementTimeout, statementTimeout)))
	setDefault(params, "idle_in_transaction_session_timeout", millis(idleInTxTimeout))
	setDefault(params, "lock_timeout", millis(lockTimeout))
	// Every query has an index. A plan cached while a table was small would scan the whole table after it has grown, until the next
	// ANALYZE a minute later. enable_seqscan=off prevents that, but gives an unavoidable scan a huge cost, which would start JIT.
	setDefault(params, "enable_seqscan", "off")
	setDefault(params, "jit", "off")
	if sabotage.AsyncCommit.On() {
		params["synchronous_commit"] = "off"
	}

	limit := connectTimeout
	if o.Unlimited {
		limit = patientTimeout
	}
	config.ConnConfig.ConnectTimeout = cmp.Or(config.ConnConfig.ConnectTimeout, limit)
	statement := limitOf(params)
	config.ConnConfig.Tracer = tracer(o, statement)
	o.Cluster.join(config, rawURL, statement)
	config.PingTimeout = limit
	fatal := config.ConnConfig.OnPgError
	config.ConnConfig.OnPgError = func(conn *pgconn.PgConn, e *pgconn.PgError) bool {
		return fatal(conn, e) && e.Code != readOnlyTransaction
	}
	if o.MaxConns > 0 {
		config.MaxConns = o.MaxConns
	}
	config.MaxConnLifetimeJitter = 10 * time.Minute
	config.AfterConnect = scanUTC
	return config, nil
}

// limitOf returns the statement_timeout in params; 0: none.
func limitOf(params map[string]string) time.Duration {
	for name, value := range params {
		if ms, err := strconv.Atoi(value); err == nil && strings.EqualFold(name, "statement_timeout") {
			return time.Duration(ms) * time.Millisecond
		}
	}
	return 0
}

// tracer returns the tracers of a pool. deadlines is the last one, so that the others see the caller's own context. It is absent if
// statements have no time limit.
func tracer(o Options, statement time.Duration) pgx.QueryTracer {
	tracers := []pgx.QueryTracer{outcomes{}, notifier{}}
	if o.Tracer != nil {
		tracers = append(tracers, o.Tracer)
	}
	if statement > 0 {
		tracers = append(tracers, deadlines{cmp.Or(o.CallTimeout, statement+answerSlack)})
	}
	return multitracer.New(tracers...)
}

// scanUTC makes pgx scan timestamptz into UTC times, instead of times in the zone of the process.
func scanUTC(_ context.Context, c *pgx.Conn) error {
	c.TypeMap().RegisterType(&pgtype.Type{
		Name:  "timestamptz",
		OID:   pgtype.TimestamptzOID,
		Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC},
	})
	return nil
}

var errUnreadable = errors.New("the database URL cannot be read: it must look like postgres://user:password@host:5432/database, with special characters of the password percent-encoded")

// readable reports whether the parts of a URL are unambiguous. In an ambiguous URL any part may be the password, so an error must not
// quote it. A keyword=value string is never readable, because its parse errors may quote it.
func readable(rawURL string) bool {
	u, err := url.Parse(rawURL)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return false
	}
	password, _ := u.User.Password()
	return !strings.Contains(password, "@") || strings.Contains(rawURL, "%40")
}

func badURL(rawURL string, err error) error {
	e, ok := errors.AsType[*pgconn.ParseConfigError](err)
	if !ok || e.Unwrap() == nil || !readable(rawURL) {
		return errUnreadable
	}
	return fmt.Errorf("the database URL cannot be used: %w", e.Unwrap())
}

// unreachable returns the error of a failed ping. It uses the server's message alone if there is one, because pgx's text repeats it.
func unreachable(c *pgx.ConnConfig, err error) error {
	where := net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return fmt.Errorf("PostgreSQL at %s refuses user %q or database %q: %s (%s)", where, c.User, c.Database, e.Message, e.Code)
	}
	return fmt.Errorf("no PostgreSQL answers at %s: %s", where, strings.Join(strings.Fields(err.Error()), " "))
}

func setDefault(params map[string]string, name, value string) {
	for given := range params {
		if strings.EqualFold(given, name) {
			return
		}
	}
	params[name] = value
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// Check returns the error that Open would return for an unusable URL. It does not connect.
func Check(rawURL string) error {
	_, err := parse(rawURL, Options{Cluster: NewCluster()})
	return err
}
