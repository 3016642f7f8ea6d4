package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/tenants"
)

// Headers of requests and endpoints that two readers could understand differently.
func TestHeadersThatDeceive(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	token := s.mint(t, "acme", tenants.TenantAdmin)

	for media, want := range map[string]int{
		"application/x-ndjson": 200, "application/x-ndjson; charset=utf-8": 200, `Application/X-NDJSON; charset="UTF-8"`: 200,
		"": 415, "application/json": 415, "application/x-ndjson; charset=iso-8859-1": 415, "application/x-ndjson; charset=utf-16": 415, "application/x-ndjson; charset": 415, "application/x-ndjson, application/json": 415, "application/jsonl": 415, "*/*": 415,
	} {
		for _, path := range []string{"/v1/schedules/bulk", "/v1/schedules/sync?workflow=w"} {
			if status, got := s.send(t, client, token, "POST", path, media, `{"workflow": "w", "key": "k", "spec": {"cron": "0 8 * * *"}}`); status != want {
				t.Errorf("%q at %s: got %d %.200s, want %d", media, path, status, got, want)
			}
		}
	}

	for name, headers := range map[string]map[string]string{
		"host": {"Host": "127.0.0.1"}, "host in lower case": {"host": "x"}, "length": {"Content-Length": "0"}, "coding": {"Transfer-Encoding": "chunked"}, "packing": {"Content-Encoding": "gzip"}, "type": {"Content-Type": "text/plain"},
		"expectation": {"Expect": "100-continue"}, "upgrade": {"Upgrade": "h2c"}, "connection": {"Connection": "X-A"}, "proxy": {"Proxy-Authorization": "x"}, "signature": {"webhook-signature": "v1,x"}, "id": {"Webhook-Id": "x"}, "trace": {"traceparent": "x"},
		"second header": {"X-A": "a\r\nX-B: b"}, "line feed": {"X-A": "a\nb"}, "NUL": {"X-A": "a\x00b"}, "line end in a name": {"X-A\r\nX-B": "b"}, "blank in a name": {"X A": "b"}, "colon in a name": {"X:A": "b"}, "no name": {"": "b"}, "not ASCII": {"Ä": "b"},
		"one name in two cases": {"X-A": "a", "x-a": "b"}, "long": {"X-A": strings.Repeat("x", 1025)},
	} {
		body := fmt.Sprintf(`{"url": "https://hook.example.com/", "headers": %s}`, marshal(t, headers))
		if status, got := s.send(t, client, token, "PUT", "/v1/endpoints/e", "application/json", body); status != http.StatusUnprocessableEntity {
			t.Errorf("%s: got %d %.200s", name, status, got)
		}
	}
}

// A lease token is valid only for its own tick, and only in its exact spelling.
func TestLeaseTokensThatDeceive(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	token := s.mint(t, "acme", tenants.TenantScopes()...)
	s.expect(t, client, token, "PUT", "/v1/workflows/w/schedules/k", `{"spec": {"cron": "0 8 1 1 *"}, "policy": {"overlap": "allow_all"}, "delivery": {"timeout": "10m"}}`, 201, "")
	var ids, tokens []string
	for range 2 {
		s.expect(t, client, token, "POST", "/v1/workflows/w/schedules/k/trigger", `{}`, 202, "")
		leased := s.expect(t, client, token, "POST", "/v1/ticks/lease", `{"workflows": ["w"], "wait": "1m", "lease": "10m", "worker": "a"}`, 200, "")["ticks"].([]any)
		if len(leased) != 1 {
			t.Fatalf("%d ticks were leased", len(leased))
		}
		tick := leased[0].(map[string]any)
		ids, tokens = append(ids, fmt.Sprint(tick["tick_id"])), append(tokens, fmt.Sprint(tick["lease_token"]))
	}
	good := tokens[0]
	other := byte('A')
	if good[len(good)/2] == other {
		other = 'B'
	}
	for name, wrong := range map[string]string{
		"another's": tokens[1], "cut": good[:len(good)-1], "longer": good + "A", "padded": good + "=", "with a line end": good + "\n", "a line end within": good[:4] + "\r\n" + good[4:], "with a blank": good + " ",
		"of another letter": good[:len(good)/2] + string(other) + good[len(good)/2+1:], "in capitals": strings.ToUpper(good), "standard base64": good + "+/", "not ASCII": good + "é", "long": strings.Repeat(good, 1000),
	} {
		if wrong == good {
			continue
		}
		for _, do := range []string{"heartbeat", "complete", "fail"} {
			body := map[string]string{"lease_token": wrong}
			if do == "fail" {
				body["error"] = "x"
			}
			if status, got := s.send(t, client, token, "POST", "/v1/ticks/"+ids[0]+"/"+do, "application/json", string(marshal(t, body))); status != http.StatusConflict {
				t.Errorf("%s, %s: got %d %.200s", name, do, status, got)
			}
		}
	}
	s.expect(t, client, token, "POST", "/v1/ticks/"+ids[0]+"/complete", fmt.Sprintf(`{"lease_token": %q}`, good), 204, "")
}
