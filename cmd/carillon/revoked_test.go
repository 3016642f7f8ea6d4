package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/tenants"
)

// inForce is the time after which each process refuses a deleted API key.
const inForce = 5 * time.Second

// A deleted API key is refused within 5 s in every process: in new requests, in a long poll that waits, in a bulk upsert that sends lines,
// and in one whose client sends nothing.
func TestADeletedAPIKeyIsRefusedEverywhere(t *testing.T) {
	t.Parallel()
	var o options
	first := serveAs(t, func(p *options) { o = *p })
	o.keys, o.minter, o.databaseURL = []tenants.Key{first.minter.Key()}, &first.minter, first.pool.Config().ConnString()
	other, err := wire(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.close)
	server := httptest.NewServer(other.router)
	t.Cleanup(server.Close)
	second := first
	second.url = server.URL

	client, admin := checked(t), first.mint(t, "acme", tenants.TenantAdmin)
	made := first.expect(t, client, admin, "POST", "/v1/admin/api-keys", `{"name": "a", "scopes": ["schedules:read", "schedules:write", "ticks:work"]}`, 201, "")
	key := fmt.Sprint(made["key"])
	for _, s := range []whole{first, second} {
		s.expect(t, client, key, "GET", "/v1/workflows", "", 200, "")
	}
	type ending struct {
		what, answer string
		status       int
		torn         bool // the server closed the connection before the client had read the end of the answer
	}
	endings, running := make(chan ending), 0
	run := func(what string, s whole, path, media string, body io.Reader) {
		running++
		go func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, "POST", s.url+path, body)
			if err != nil {
				endings <- ending{what, err.Error(), 0, false}
				return
			}
			req.Header.Set("Authorization", "Bearer "+key)
			req.Header.Set("Content-Type", media)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				endings <- ending{what, err.Error(), 0, false}
				return
			}
			defer resp.Body.Close()
			answer, err := io.ReadAll(resp.Body)
			endings <- ending{what, string(answer), resp.StatusCode, err != nil}
		}()
	}
	const line = `{"workflow": "w", "key": "k%d", "spec": {"cron": "0 8 1 1 *"}}` + "\n"
	for n, s := range []whole{first, second} {
		run(fmt.Sprintf("poll %d", n), s, "/v1/ticks/lease", "application/json", strings.NewReader(`{"workflows": ["none"], "wait": "30s", "worker": "a"}`))
		silent, sender := io.Pipe()
		t.Cleanup(func() { _ = sender.Close() })
		run(fmt.Sprintf("silent bulk %d", n), s, "/v1/schedules/bulk", "application/x-ndjson", silent)
		busy, lines := io.Pipe()
		run(fmt.Sprintf("busy bulk %d", n), s, "/v1/schedules/bulk", "application/x-ndjson", busy)
		go func() {
			w := bufio.NewWriterSize(lines, 1<<10)
			for i := range 1_000_000 {
				if _, err := fmt.Fprintf(w, line, i%1000); err != nil {
					return // the request has ended
				}
			}
			_ = lines.Close()
		}()
		if _, err := fmt.Fprintf(sender, line, 0); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case e := <-endings:
		t.Fatalf("%s ended before the key was deleted: %d %s", e.what, e.status, e.answer)
	case <-time.After(time.Second):
	}
	first.expect(t, client, admin, "DELETE", "/v1/admin/api-keys/"+fmt.Sprint(made["id"]), "", 204, "")
	deadline := time.After(inForce)
	for range running {
		select {
		case e := <-endings:
			if cut := e.status == 200 && strings.HasSuffix(e.what[:len(e.what)-2], "bulk") && (e.torn || strings.Contains(e.answer, `"invalid_token"`)) && !strings.Contains(e.answer, `"summary"`); e.status != 401 && !cut {
				t.Errorf("%s: got %d %.300s", e.what, e.status, e.answer)
			}
		case <-deadline:
			t.Fatal("a request outlives its key")
		}
	}
	for _, s := range []whole{first, second} {
		s.expect(t, client, key, "GET", "/v1/workflows", "", 401, "invalid_token")
	}
}
