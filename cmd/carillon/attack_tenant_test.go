package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/tenants"
)

// belongings are the names of a tenant's things, for parameters and bodies.
type belongings struct {
	word   string            // a part of every name
	params map[string]string // by the parameter's name
	ids    map[string]string // by the path segment before the id
	body   map[string]string // by the member's name
	header map[string]string
	cursor map[string]string // by the operation that returned it
}

// path returns the operation's path and query with these names in each parameter that takes one.
func (b belongings) path(a attacked) string {
	values, query := map[string]string{}, url.Values{}
	for _, p := range a.params {
		name := p.Value.Name
		switch {
		case p.Value.In == "path" && name == "id":
			values[name] = b.ids[strings.Split(strings.TrimPrefix(strings.TrimPrefix(a.path, "/v1/"), "admin/"), "/")[0]]
		case p.Value.In == "path":
			values[name] = b.params[name]
		case p.Value.In == "query" && name == "cursor":
			if c := b.cursor[a.id]; c != "" {
				query.Set(name, c)
			}
		case p.Value.In == "query" && p.Value.Required:
			query.Set(name, fmt.Sprint(p.Value.Example))
		case p.Value.In == "query" && b.params[name] != "":
			query.Set(name, b.params[name])
		}
	}
	if len(query) == 0 {
		return a.fill(values)
	}
	return a.fill(values) + "?" + query.Encode()
}

// in returns an example body with these names.
func (b belongings) in(v any, member string) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, inner := range v {
			out[name] = b.in(inner, name)
		}
		return out
	case []any:
		out := []any{}
		for _, inner := range v {
			out = append(out, b.in(inner, member))
		}
		return out
	case string:
		if mine, ok := b.body[member]; ok {
			return mine
		}
	}
	return v
}

func (b belongings) bytes(t *testing.T, a attacked) [][]byte {
	t.Helper()
	all := [][]byte{nil}
	if a.media != "" {
		all = nil
	}
	for _, example := range a.bodies {
		if a.media != "application/x-ndjson" {
			all = append(all, marshal(t, b.in(example, "")))
			continue
		}
		var lines []byte
		for _, v := range lined(t, example) {
			lines = append(append(lines, marshal(t, b.in(v, ""))...), '\n')
		}
		all = append(all, lines)
	}
	return all
}

var (
	made    = regexp.MustCompile(`(tick|op|sch|schedule|key|ak)_[0-9a-z]{20,}|whsec_[A-Za-z0-9+/=]+|carillon_key_\w+|eyJ[\w.-]+|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]{5})|00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]|[0-9]{16}`)
	request = regexp.MustCompile(`"instance":"[^"]*"`)
	varied  = regexp.MustCompile(`"(lateness_ms|took_ms|subject_hash|webhook_id)":("(test_)?[0-9A-Za-z]+"|[0-9]+)`)
)

// told returns an answer without the parts that differ between any two: the requested names, ids and times.
func (b belongings) told(got answer) string {
	text := string(got.body)
	for _, own := range b.ids {
		text = strings.ReplaceAll(text, own, "ID")
	}
	text = made.ReplaceAllString(text, "MADE")
	text = request.ReplaceAllString(text, "")
	text = varied.ReplaceAllString(text, "$1")
	text = strings.ReplaceAll(text, b.word, "NAME")
	return fmt.Sprint(got.status, " ", made.ReplaceAllString(got.header.Get("ETag"), "MADE"), " ", got.header.Get("Content-Type"), " ", made.ReplaceAllString(got.header.Get("Location"), "MADE"), " ", text)
}

// Another tenant's thing is answered like an absent one, wherever the document lets a request name something. Two tenants send the same
// requests: one names the things of a third tenant, the other names things that do not exist. Nothing of the third changes.
func TestAnothersThingsAreAbsent(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	all := documented(t)
	owner := s.settle(t, client, all)
	nothing := belongings{
		word:   "void",
		params: map[string]string{},
		ids:    map[string]string{},
		body:   map[string]string{},
		header: map[string]string{"Idempotency-Key": "void-request", "If-Match": owner.header["If-Match"], "If-None-Match": owner.header["If-None-Match"]},
		cursor: map[string]string{},
	}
	swap := func(to, from map[string]string) {
		for name, value := range from {
			to[name] = strings.ReplaceAll(value, owner.word, nothing.word)
		}
	}
	swap(nothing.params, owner.params)
	swap(nothing.body, owner.body)
	for name, id := range owner.ids {
		nothing.ids[name] = id[:strings.IndexByte(id, '_')+1] + "0a1b2c3d4e5f6g7h8i9jklmnop"
	}
	for name := range owner.cursor {
		nothing.cursor[name] = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	}
	nothing.params["schedule_id"] = nothing.ids["schedules"]
	nothing.body["tick_id"], nothing.body["lease_token"] = nothing.ids["ticks"], "no-token"

	tokens := map[string]string{}
	for _, tenant := range []string{"thief", "fool"} {
		if _, err := tenants.Ensure(t.Context(), s.pool, tenant, tenants.Wide()); err != nil {
			t.Fatal(err)
		}
		tokens[tenant] = s.mint(t, tenant, tenants.TenantScopes()...)
	}
	before := s.print(t, "acme")
	try := func(a attacked, header bool) {
		bodies, others := owner.bytes(t, a), nothing.bytes(t, a)
		for i := range bodies {
			ask := func(tenant string, b belongings, body []byte) string {
				h := http.Header{}
				if body != nil {
					h.Set("Content-Type", a.media)
				}
				for _, p := range a.params {
					if v := b.header[p.Value.Name]; header && p.Value.In == "header" && v != "" {
						h.Set(p.Value.Name, v)
					}
				}
				got, ok := s.ask(t, client, tokens[tenant], a.method, b.path(a), h, body, patience)
				if !ok {
					t.Errorf("%s: no answer", a.id)
				}
				return b.told(got)
			}
			stolen, absent := ask("thief", owner, bodies[i]), ask("fool", nothing, others[i])
			if stolen != absent {
				t.Errorf("%s (example %d, headers %t) tells another's from none:\n%s\n%s", a.id, i, header, stolen, absent)
			}
		}
	}
	for _, a := range all {
		if !strings.HasPrefix(a.path, "/v1/") || a.id == "leaseTicks" || slices.Contains([]string{"haltTenant", "continueTenant", "exchangeAPIKey", "getQuotas", "getOverview", "getSelf", "listZones"}, a.id) {
			continue // they take no name; the lease waits for ticks, and is tested below
		}
		try(a, false)
		try(a, true)
	}
	got, ok := s.ask(t, client, tokens["thief"], "POST", "/v1/ticks/lease", http.Header{"Content-Type": {"application/json"}}, []byte(`{"workflows": ["mine-w", "mine-other"], "wait": "0s", "worker": "thief"}`), patience)
	if !ok || strings.Contains(string(got.body), "tick_") {
		t.Errorf("another's ticks are leased: %s", got.body)
	}
	for table, rows := range s.print(t, "acme") {
		if rows != before[table] {
			t.Errorf("the owner's rows of %s have changed", table)
		}
	}
}

// settle creates things of every kind for acme, with mine in their names, and returns these names.
func (s whole) settle(t *testing.T, client *http.Client, all []attacked) belongings {
	t.Helper()
	token := s.mint(t, "acme", tenants.TenantScopes()...)
	put := func(path, body string) map[string]any {
		t.Helper()
		return s.expect(t, client, token, "PUT", path, body, 201, "")
	}
	var schedule, key, op map[string]any
	for _, n := range []string{"", "-other"} {
		put("/v1/calendars/mine-days"+n, `{"dates": ["2026-12-25"]}`)
		put("/v1/endpoints/mine-hook"+n, `{"url": "https://hook.example.com/", "state": "held"}`)
		put("/v1/workflows/mine-w"+n, `{}`)
		put("/v1/subjects/mine-k"+n, `{"timezone": "Europe/Berlin"}`)
		schedule = put("/v1/workflows/mine-w/schedules/mine-k"+n, `{"spec": {"cron": "0 8 1 1 *", "timezone": "@subject", "exclude": {"named": ["mine-days"]}}, "policy": {"overlap": "allow_all"}, "delivery": {"timeout": "10m"}}`)
		key = s.expect(t, client, token, "POST", "/v1/admin/api-keys", fmt.Sprintf(`{"name": "mine%s", "scopes": ["schedules:read"]}`, n), 201, "")
		op = s.expect(t, client, token, "POST", "/v1/schedules/actions", `{"action": "retime", "filter": {"workflow": "mine-none"}}`, 202, "")
	}
	once := http.Header{"Idempotency-Key": {"mine-request"}, "Content-Type": {"application/json"}}
	for range 2 {
		s.ask(t, client, token, "POST", "/v1/workflows/mine-w/schedules/mine-k/trigger", once, []byte(`{}`), patience)
		s.expect(t, client, token, "POST", "/v1/workflows/mine-w/schedules/mine-k/trigger", `{}`, 202, "")
	}
	leased := s.expect(t, client, token, "POST", "/v1/ticks/lease", `{"workflows": ["mine-w"], "wait": "1m", "lease": "10m", "worker": "a"}`, 200, "")["ticks"].([]any)[0].(map[string]any)
	s.settled(t)
	id := func(v any) string { return fmt.Sprint(v) }
	if doc := s.expect(t, client, token, "GET", "/v1/operations/"+id(op["id"]), "", 200, ""); doc["ended_at"] == nil {
		t.Errorf("all operations have ended, and this one is shown as %v", doc)
	}
	b := belongings{
		word:   "mine",
		params: map[string]string{"workflow": "mine-w", "key": "mine-k", "subject": "mine-k", "calendar": "mine-days", "name": "mine-hook", "tenant": "mine", "key_prefix": "mine", "key_contains": "mine", "subject_prefix": "mine", "timezone": "Europe/Berlin"},
		ids:    map[string]string{"ticks": id(leased["tick_id"]), "operations": id(op["id"]), "api-keys": id(key["id"]), "schedules": id(schedule["id"])},
		body: map[string]string{
			"tick_id": id(leased["tick_id"]), "lease_token": id(leased["lease_token"]), "workflow": "mine-w", "workflows": "mine-w", "key": "mine-k", "subject": "mine-k", "keys": "mine-k",
			"to": "mine-new", "named": "mine-days", "endpoint": "mine-hook",
		},
		header: map[string]string{"Idempotency-Key": "mine-request", "If-Match": `"1"`, "If-None-Match": `"1"`},
		cursor: map[string]string{},
	}
	spare := ""
	for _, a := range all {
		if !slices.ContainsFunc(a.params, func(p *openapi3.ParameterRef) bool { return p.Value.Name == "cursor" }) || a.platform() {
			continue
		}
		path := strings.Split(b.path(a), "?")[0] + "?limit=1"
		got, _ := s.ask(t, client, token, a.method, path, nil, nil, patience)
		var page struct {
			Next *string `json:"next_cursor"`
		}
		if err := json.Unmarshal(got.body, &page); err != nil || got.status != http.StatusOK {
			t.Fatalf("%s: %d %s", a.id, got.status, got.body)
		}
		if page.Next != nil {
			spare = *page.Next
		}
		b.cursor[a.id] = spare
	}
	b.params["schedule_id"] = b.ids["schedules"]
	return b
}

// settled waits until workers have all due ticks and all operations have ended, so that no row changes by itself any more.
func (s whole) settled(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(inTime); ; <-time.After(20 * time.Millisecond) {
		var moving bool
		err := s.pool.QueryRow(t.Context(), `
			SELECT EXISTS (SELECT FROM delayed) OR EXISTS (SELECT FROM chunk WHERE done_at IS NULL) OR EXISTS (SELECT FROM operation WHERE ended_at IS NULL)`).Scan(&moving)
		if err != nil {
			t.Fatal(err)
		}
		if !moving {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("ticks that are due do not come to the workers, or an operation does not end")
		}
	}
}

// print returns a hash of a tenant's rows in each table, without what the engine counts and watches.
func (s whole) print(t *testing.T, tenant string) map[string]string {
	t.Helper()
	rows, _ := s.pool.Query(t.Context(), `
		SELECT table_name, md5(query_to_xml(format(
			'SELECT * FROM %I x WHERE tenant_id = (SELECT id FROM tenant WHERE name = %L) ORDER BY x::text', table_name, $1::text), true, false, '')::text) AS hash
		FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
		WHERE column_name = 'tenant_id' AND table_schema = current_schema AND table_type = 'BASE TABLE'
			AND table_name NOT IN ('allowance', 'bucket', 'tally', 'tally_delta', 'daily_use', 'daily_use_delta', 'use_series', 'workflow_poll', 'unmet_expectation')`, tenant)
	type table struct{ TableName, Hash string }
	tables, err := pgx.CollectRows(rows, pgx.RowToStructByName[table])
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, t := range tables {
		all[t.TableName] = t.Hash
	}
	return all
}
