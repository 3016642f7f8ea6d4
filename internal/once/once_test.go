package once_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"
	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/internal/web"
)

func TestMain(m *testing.M) { postgrestest.MainNoLeaks(m) }

func addTenant(t testing.TB, pool *pgxpool.Pool, name string) (id int32) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `INSERT INTO tenant (name) VALUES ($1) RETURNING id`, name).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// post returns the request of a POST with that body, and with that Idempotency-Key unless it is empty.
func post(path, key, body string) once.Request {
	sent := httptest.NewRequest("POST", path, strings.NewReader(body))
	if key != "" {
		sent.Header.Set("Idempotency-Key", key)
	}
	r, err := once.Of(echo.New().NewContext(sent, httptest.NewRecorder()))
	if err != nil {
		panic(err)
	}
	return r
}

// do runs a change in a transaction of its own.
func do[T any](ctx context.Context, pool *pgxpool.Pool, tenant int32, r once.Request, change func(tx pgx.Tx) (T, error)) (v T, replayed bool, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
		v, replayed, err = once.Do(ctx, tx, tenant, r, func() (T, error) { return change(tx) })
		return err
	})
	return v, replayed, err
}

func codeOf(err error) string {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f.Code
	}
	return ""
}

type made struct {
	N    int     `json:"n"`
	Text *string `json:"text,omitempty"`
}

func TestDo(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Database(t)
	mine, other := addTenant(t, pool, "mine"), addTenant(t, pool, "other")
	runs := 0
	change := func(pgx.Tx) (made, error) { runs++; return made{N: runs}, nil }
	send := func(tenant int32, path, key, body string, want int, wantReplayed bool) {
		t.Helper()
		v, replayed, err := do(t.Context(), pool, tenant, post(path, key, body), change)
		if err != nil || v.N != want || replayed != wantReplayed {
			t.Errorf("got %+v %v %v, want %d %v", v, replayed, err, want, wantReplayed)
		}
	}
	send(mine, "/a", "k", "body", 1, false)
	send(mine, "/a", "k", "body", 1, true)
	send(mine, "/b", "k", "body", 2, false)
	send(mine, "/a", "l", "body", 3, false)
	send(other, "/a", "k", "other body", 4, false)
	send(mine, "/a", "", "body", 5, false)
	send(mine, "/a", "", "body", 6, false)
	for _, path := range []string{"/a", "/a?force=true"} {
		if _, _, err := do(t.Context(), pool, mine, post(path, "k", "another"), change); codeOf(err) != "idempotency_key_reused" {
			t.Errorf("got %v for another request to %s", err, path)
		}
	}

	failed := errors.New("not this time")
	if _, replayed, err := do(t.Context(), pool, mine, post("/a", "m", "body"), func(pgx.Tx) (made, error) { return made{}, failed }); !errors.Is(err, failed) || replayed {
		t.Errorf("got %v %v", replayed, err)
	}
	send(mine, "/a", "m", "body", 7, false)

	if _, err := pool.Exec(t.Context(), `UPDATE idempotency SET created_at = now() - interval '24 hours 1 second' WHERE tenant_id = $1`, mine); err != nil {
		t.Fatal(err)
	}
	send(mine, "/a", "k", "another", 8, false)
	send(mine, "/a", "k", "another", 8, true)
	send(other, "/a", "k", "other body", 4, true)
}

func TestARequestInFlightIsRefused(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Database(t)
	tenant := addTenant(t, pool, "mine")
	v, _, err := do(t.Context(), pool, tenant, post("/a", "k", ""), func(pgx.Tx) (int, error) {
		_, _, err := do(t.Context(), pool, tenant, post("/a", "k", ""), func(pgx.Tx) (int, error) {
			t.Error("the change was made twice at once")
			return 0, nil
		})
		f, ok := errors.AsType[*fault.Error](err)
		if !ok || f.Status != 409 || f.Code != "idempotency_in_flight" || f.RetryAfter != time.Second {
			t.Errorf("got %v while in flight", err)
		}
		if _, _, err := do(t.Context(), pool, tenant, post("/a", "other", ""), func(pgx.Tx) (int, error) { return 2, nil }); err != nil {
			t.Errorf("another key had to wait: %v", err)
		}
		return 1, nil
	})
	if err != nil || v != 1 {
		t.Errorf("got %d %v", v, err)
	}
}

// Whatever requests come, and whichever of them fail, the change of each key is made once, and the later requests get its value.
func TestEachKeyIsOfOneChange(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Database(t)
	if _, err := pool.Exec(t.Context(), `CREATE TABLE change (n int)`); err != nil {
		t.Fatal(err)
	}
	var tenants [2]int32
	for i := range tenants {
		tenants[i] = addTenant(t, pool, fmt.Sprint("t", i))
	}
	rapid.Check(t, func(rt *rapid.T) {
		if _, err := pool.Exec(t.Context(), `TRUNCATE change, idempotency`); err != nil {
			rt.Fatal(err)
		}
		type first struct {
			body string
			n    int
		}
		known := map[string]first{}
		count := 0
		for i := range rapid.IntRange(1, 30).Draw(rt, "requests") {
			tenant := rapid.SampledFrom(tenants[:]).Draw(rt, "tenant")
			path := rapid.SampledFrom([]string{"/a", "/b"}).Draw(rt, "path")
			key := rapid.SampledFrom([]string{"", "k", "l", "K"}).Draw(rt, "key")
			body := rapid.SampledFrom([]string{"", "x", "x", "x"}).Draw(rt, "body")
			fails := rapid.IntRange(0, 3).Draw(rt, "fails") == 0
			failed := errors.New("not this time")
			v, replayed, err := do(t.Context(), pool, tenant, post(path, key, body), func(tx pgx.Tx) (made, error) {
				if _, err := tx.Exec(t.Context(), `INSERT INTO change VALUES ($1)`, i); err != nil {
					return made{}, err
				}
				if fails {
					return made{}, failed
				}
				return made{N: i, Text: &body}, nil
			})
			name := fmt.Sprint(tenant, path, key)
			was, again := known[name]
			switch {
			case again && was.body != body:
				if codeOf(err) != "idempotency_key_reused" {
					rt.Fatalf("%s: got %v for another body", name, err)
				}
			case again:
				if err != nil || !replayed || v.N != was.n || *v.Text != body {
					rt.Fatalf("%s: got %+v %v %v, want %d again", name, v, replayed, err, was.n)
				}
			case fails:
				if !errors.Is(err, failed) || replayed {
					rt.Fatalf("%s: got %v %v", name, replayed, err)
				}
			default:
				count++
				if err != nil || replayed || v.N != i {
					rt.Fatalf("%s: got %+v %v %v", name, v, replayed, err)
				}
				if key != "" {
					known[name] = first{body, i}
				}
			}
		}
		var stored, values int
		if err := pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM change), (SELECT count(*) FROM idempotency)`).Scan(&stored, &values); err != nil {
			rt.Fatal(err)
		}
		if stored != count || values != len(known) {
			rt.Fatalf("%d changes and %d values are stored, want %d and %d", stored, values, count, len(known))
		}
	})
}

// Of many requests with the same key at once, each gets the value of the one change, or is told that it is in flight.
func TestRequestsAtOnceMakeOneChange(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Database(t)
	tenant := addTenant(t, pool, "mine")
	for round := range 10 {
		r := post("/a", fmt.Sprint("k", round), "")
		var runs, fresh atomic.Int32
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for {
					v, replayed, err := do(t.Context(), pool, tenant, r, func(pgx.Tx) (int32, error) { return runs.Add(1), nil })
					if codeOf(err) == "idempotency_in_flight" {
						continue
					}
					if err != nil || v != 1 {
						t.Errorf("got %d %v", v, err)
					}
					if !replayed {
						fresh.Add(1)
					}
					return
				}
			})
		}
		wg.Wait()
		if runs.Load() != 1 || fresh.Load() != 1 {
			t.Errorf("the change was made %d times, and %d requests were the first", runs.Load(), fresh.Load())
		}
	}
}

// kinds has a field of each kind that the values of changes have.
type kinds struct {
	Text    string            `json:"text"`
	Null    *string           `json:"null"`
	Left    *int              `json:"left,omitempty"`
	At      time.Time         `json:"at"`
	Number  int64             `json:"number"`
	List    []string          `json:"list"`
	None    []string          `json:"none"`
	Map     map[string]string `json:"map"`
	Payload web.Raw           `json:"payload"`
	Params  json.RawMessage   `json:"params"`
	Inner   struct {
		On bool `json:"on"`
	} `json:"inner"`
}

// A replayed value is written byte for byte as the first one was.
func TestAReplayedValueIsWrittenAlike(t *testing.T) {
	t.Parallel()
	pool := postgrestest.Database(t)
	tenant := addTenant(t, pool, "mine")
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.String().Draw(rt, "text")
		v := kinds{
			Text: text, At: time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(rt, "at")).UTC(), Number: rapid.Int64().Draw(rt, "number"),
			List: rapid.SliceOfN(rapid.String(), 0, 3).Draw(rt, "list"), Map: map[string]string{"b": text, "a": "<&>"},
			Payload: web.Raw(`{ "b" : 1.0,  "a": "<&>\u00e9" }`), Params: json.RawMessage(`{"n":12345678901234567890}`),
		}
		if rapid.Bool().Draw(rt, "set") {
			v.Null, v.Left, v.Inner.On = &text, new(0), true
		}
		runs++
		r := post("/a", fmt.Sprint("k", runs), "")
		var written [2]string
		for i := range written {
			got, replayed, err := do(t.Context(), pool, tenant, r, func(pgx.Tx) (kinds, error) { return v, nil })
			if err != nil || replayed != (i == 1) {
				rt.Fatalf("got %v %v", replayed, err)
			}
			text, err := web.Marshal(got)
			if err != nil {
				rt.Fatal(err)
			}
			written[i] = string(text)
		}
		if written[0] != written[1] {
			rt.Fatalf("got %s, and first %s", written[1], written[0])
		}
	})
}
