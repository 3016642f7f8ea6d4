package dispatchtest

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// FromLowEnd changes an argument of the recorded statement that contains word, so that its next run reads from the low end of the index.
func (r *Recorder) FromLowEnd(word string, arg int) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	for sql, args := range r.Ran {
		if !strings.Contains(sql, word) {
			continue
		}
		args = slices.Clone(args)
		switch from := args[arg].(type) {
		case time.Time:
			args[arg] = time.Time{}
		case []time.Time, pgtype.ArrayGetter:
			args[arg] = make([]time.Time, len(instants(from)))
		case int64:
			args[arg] = int64(0)
		case []int64:
			args[arg] = make([]int64, len(from))
		}
		r.Ran[sql] = args
	}
}

// BeganAt is like Began, for a statement that begins at a number.
func (r *Recorder) BeganAt(word string, arg int) (from int64) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	for sql, args := range r.Ran {
		if strings.Contains(sql, word) {
			from, _ = args[arg].(int64)
		}
	}
	return from
}

// Pages returns how many pages some statements read: those that were recorded and contain one of some words, and one more.
func (h *Carillon) Pages(r *Recorder, more string, words ...string) map[string]int {
	h.T.Helper()
	r.Mu.Lock()
	ran := map[string][]any{more: nil}
	for sql, args := range r.Ran {
		if slices.ContainsFunc(words, func(word string) bool { return strings.Contains(sql, word) }) {
			ran[sql] = args
		}
	}
	r.Mu.Unlock()
	if len(ran) < len(words)+1 {
		h.T.Fatalf("%d statements contain %q", len(ran)-1, words)
	}
	read := map[string]int{}
	for sql, args := range ran {
		tx, err := h.Pool.Begin(h.T.Context())
		if err != nil {
			h.T.Fatal(err)
		}
		var plans []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		var text []byte
		err = tx.QueryRow(h.T.Context(), `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+sql, args...).Scan(&text)
		if err == nil {
			err = json.Unmarshal(text, &plans)
		}
		if err != nil {
			h.T.Fatalf("%v:\n%s", err, sql)
		}
		_ = tx.Rollback(h.T.Context())
		read[sql] = plans[0].Plan.Hit + plans[0].Plan.Read
	}
	return read
}

// LookedFrom reports whether the last run of the statement that contains word had no number below above in an argument.
func (r *Recorder) LookedFrom(word string, arg int, above int64) bool {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	for sql, args := range r.Ran {
		if !strings.Contains(sql, word) {
			continue
		}
		numbers, _ := args[arg].([]int64)
		for _, n := range numbers {
			if n < above {
				return false
			}
		}
		return true
	}
	return false
}

// Began returns the moment at which the last run of the statement that contains word began to read: the earliest of an argument.
func (r *Recorder) Began(word string, arg int) (first time.Time) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	for sql, args := range r.Ran {
		if !strings.Contains(sql, word) {
			continue
		}
		if from := instants(args[arg]); len(from) > 0 {
			return slices.MinFunc(from, time.Time.Compare)
		}
	}
	return first
}

// instants returns the times of an argument: one, or those of an array.
func instants(arg any) (all []time.Time) {
	switch from := arg.(type) {
	case time.Time:
		return []time.Time{from}
	case []time.Time:
		return from
	case pgtype.ArrayGetter:
		for i := range int(from.Dimensions()[0].Length) {
			all = append(all, from.Index(i).(*pgtype.Timestamptz).Time)
		}
	}
	return all
}

// Recorder keeps the statements that a pool runs, each with the arguments of its last run.
type Recorder struct {
	Mu  sync.Mutex
	Ran map[string][]any
}

func (r *Recorder) keep(sql string, args []any) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.Ran[strings.TrimSpace(sql)] = args
}

func (r *Recorder) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	r.keep(data.SQL, data.Args)
	return ctx
}

func (r *Recorder) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (r *Recorder) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (r *Recorder) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	r.keep(data.SQL, data.Args)
}

func (r *Recorder) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
