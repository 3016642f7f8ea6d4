package subjects

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

// unfinished is an erasure whose record and answers are not all deleted yet.
type unfinished struct {
	tenant    tenants.ID
	id        int64
	subject   string // its last name
	hash      []byte // of the subject
	schedules []int64
	names     []string // of the subject: the last and earlier ones
	route     string   // with once: the last kept answer that was searched
	once      string
}

// eraseRecord deletes a part of an erased subject's schedules, after the last part a part of their record, and at last a part of the
// answers that hold the subject.
func (es *Erasures) eraseRecord(ctx context.Context, tx pgx.Tx, tenant tenants.ID, id int64) (done bool, err error) {
	e := unfinished{tenant: tenant, id: id}
	var earlier []string
	err = tx.QueryRow(ctx, `
		SELECT schedule_ids, subject, subject_hash, earlier, COALESCE(answer_route, ''), COALESCE(answer_key, '')
		FROM erasure
		WHERE tenant_id = $1 AND id = $2 AND erased_at IS NULL
		FOR UPDATE`, tenant, id).Scan(&e.schedules, &e.subject, &e.hash, &earlier, &e.route, &e.once)
	if errors.Is(err, pgx.ErrNoRows) { // another has finished it
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read erasure: %w", err)
	}
	left, err := unerased(ctx, tx, tenant, e.schedules)
	if err != nil {
		return false, err
	}
	if len(left) > 0 {
		return false, e.erasePart(ctx, tx, left)
	}
	e.names = []string{e.subject}
	for _, escaped := range earlier {
		name, err := url.PathUnescape(escaped)
		if err != nil {
			return false, fmt.Errorf("an earlier name of the subject: %w", err)
		}
		e.names = append(e.names, name)
	}
	ticks, attempts, done, err := es.forget(ctx, tx, tenant, e.schedules)
	if err != nil {
		return false, fmt.Errorf("forget schedules: %w", err)
	}
	_, err = tx.Exec(ctx, `
		UPDATE erasure
		SET ticks = ticks + $3, attempts = attempts + $4
		WHERE tenant_id = $1 AND id = $2`, tenant, id, ticks, attempts)
	if err != nil {
		return false, fmt.Errorf("note erasure: %w", err)
	}
	if !done {
		return false, nil
	}
	return eraseAnswers(ctx, tx, e)
}

const answersSearched = 500 // in one step

// eraseAnswers searches the next answers that are kept for an Idempotency-Key. It deletes those that hold a subject, or are to a
// request that named it. After the last answer the erasure is done.
func eraseAnswers(ctx context.Context, tx pgx.Tx, e unfinished) (done bool, err error) {
	var members [][]byte
	for _, name := range e.names {
		for _, member := range []string{"subject", "key", "key_prefix", "subject_prefix"} {
			object, err := web.Marshal(map[string]string{member: name})
			if err != nil {
				return false, err
			}
			members = append(members, object[1:len(object)-1])
		}
	}
	rows, _ := tx.Query(ctx, `
		SELECT route, key, EXISTS (SELECT FROM unnest($4::bytea[]) AS m (member) WHERE position(m.member IN answer) > 0)
		FROM idempotency
		WHERE tenant_id = $1 AND (route, key) > ($2, $3)
		ORDER BY route, key
		LIMIT $5`, e.tenant, e.route, e.once, members, answersSearched) // ForEachRow reports the error
	var holds bool
	var routes, onces []string
	searched := 0
	_, err = pgx.ForEachRow(rows, []any{&e.route, &e.once, &holds}, func() error {
		searched++
		if holds || routeNames(e.route, e.names) {
			routes, onces = append(routes, e.route), append(onces, e.once)
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("search answers: %w", err)
	}
	_, err = tx.Exec(ctx, `
		DELETE FROM idempotency i
		USING unnest($2::text[], $3::text[]) AS gone (route, key)
		WHERE i.tenant_id = $1 AND i.route = gone.route AND i.key = gone.key`, e.tenant, routes, onces)
	if err != nil {
		return false, fmt.Errorf("erase answers: %w", err)
	}
	done = searched < answersSearched
	_, err = tx.Exec(ctx, `
		UPDATE erasure
		SET answers = answers + $3,
			answer_route = CASE WHEN NOT $6 THEN $4 END, answer_key = CASE WHEN NOT $6 THEN $5 END,
			erased_at = CASE WHEN $6 THEN `+postgres.Now+` END, subject = CASE WHEN NOT $6 THEN subject END, earlier = CASE WHEN NOT $6 THEN earlier END
		WHERE tenant_id = $1 AND id = $2`, e.tenant, e.id, len(routes), e.route, e.once, done)
	if err != nil {
		return false, fmt.Errorf("note erasure: %w", err)
	}
	return done, nil
}

// routeNames reports whether the path of a kept answer's route names a subject by one of its names, however the client
// escaped it.
func routeNames(route string, names []string) bool {
	_, path, _ := strings.Cut(route, " ")
	parts := strings.Split(path, "/")
	for i, part := range parts[1:] {
		name, err := url.PathUnescape(part)
		if err == nil && slices.Contains(names, name) && slices.Contains([]string{"schedules", "subjects"}, parts[i]) {
			return true
		}
	}
	return false
}
