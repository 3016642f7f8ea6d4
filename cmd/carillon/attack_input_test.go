package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/internal/web/webtest"
	"github.com/carillonhq/carillon/tenants"
)

// Keys that would be equal after a second decoding or after case folding are different keys.
func TestKeysAreComparedByteForByte(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	token := s.mint(t, "acme", tenants.TenantAdmin)
	keys := map[string]string{}
	for _, sent := range []string{
		"a%2Fb", "a%252Fb", "a%25252Fb", "A%2FB", "a+b", "a%20b", "%C3%A9", "e%CC%81", "a%3Fb", "a%23b", "a%26b", "a%5Cb", "%2E", "%2E%2E", "%2E%2E%2F", "a;b", "a:b", "a%2F", "%2Fa", "%2F", "%E2%80%AE", "%F0%9F%98%80", "a%EF%BB%BF",
		"pause", "ticks", ":key", "*", "%25", "a%2fb%2Fc", "%27%3B--", "%24%7Bx%7D", "%C2%A0", strings.Repeat("k", 256), strings.Repeat("%C3%BC", 128),
	} {
		path := "/v1/workflows/w/schedules/" + sent
		if sent == "a%252Fb" { // the key with the other spelling already exists
			s.expect(t, client, token, "GET", path, "", 404, "not_found")
		}
		doc := s.expect(t, client, token, "PUT", path, `{"spec": {"cron": "0 8 * * *"}}`, 201, "")
		want, err := url.PathUnescape(sent)
		if err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprint(doc["key"])
		if before, ok := keys[key]; ok || key != want {
			t.Errorf("%s is %q, as is %q; want %q", sent, key, before, want)
		}
		keys[key] = sent
	}
	for sent, want := range map[string]int{
		"": 404, "%00": 422, "a%00b": 422, "%FF": 422, "%C0%AF": 422, "%ED%A0%80": 422, "%0A": 422, "%7F": 422, "%C2%85": 422, strings.Repeat("k", 257): 422, strings.Repeat("%C3%BC", 129): 422, "a/b": 404, "a//pause": 404,
	} {
		if status, got := s.send(t, client, token, "PUT", "/v1/workflows/w/schedules/"+sent, "application/json", `{"spec": {"cron": "0 8 * * *"}}`); status != want && !(want == 404 && status == 405) {
			t.Errorf("key %.40s: got %d %s, want %d", sent, status, got, want)
		}
	}
}

var requestID = regexp.MustCompile(`"instance": ?"[^"]*"`)

// Bodies that two readers could understand differently, or that grow when they are decompressed.
func TestBodiesThatDeceive(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	token := s.mint(t, "acme", tenants.TenantAdmin)
	const spec = `"spec": {"cron": "0 8 * * *"}`
	zip := func(body []byte) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(body)
		_ = z.Close()
		return b.String()
	}
	nested := func(n int) string {
		return `{` + spec + `, "payload": ` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`
	}
	for name, c := range map[string]struct {
		status                int
		media, encoding, body string
	}{
		"member twice":                {400, "", "", `{` + spec + `, ` + spec + `}`},
		"member twice, escaped":       {400, "", "", `{` + spec + `, "\u0073pec": {}}`},
		"member twice in the spec":    {400, "", "", `{"spec": {"cron": "0 8 * * *", "cron": "0 9 * * *"}}`},
		"member twice in the payload": {400, "", "", `{` + spec + `, "payload": {"a": {"b": 1, "b": 2}}}`},
		"member of another case":      {400, "", "", `{"Spec": {"cron": "0 8 * * *"}}`},
		"unknown member":              {400, "", "", `{` + spec + `, "tenant_id": 1}`},
		"unknown member, deep":        {400, "", "", `{"spec": {"cron": "0 8 * * *", "dst": {"gaps": "skip"}}}`},
		"own id":                      {400, "", "", `{` + spec + `, "id": "sch_x"}`},
		"own version":                 {400, "", "", `{` + spec + `, "version": 7}`},
		"trailing value":              {400, "", "", `{` + spec + `} {}`},
		"trailing bracket":            {400, "", "", `{` + spec + `}}`},
		"trailing NUL":                {400, "", "", `{` + spec + "}\x00"},
		"byte order mark":             {400, "", "", "\ufeff{" + spec + `}`},
		"comment":                     {400, "", "", `{` + spec + ` /* x */}`},
		"trailing comma":              {400, "", "", `{` + spec + `,}`},
		"single quotes":               {400, "", "", `{'spec': {}}`},
		"NaN":                         {400, "", "", `{` + spec + `, "payload": NaN}`},
		"leading zero":                {400, "", "", `{` + spec + `, "payload": 01}`},
		"lone surrogate":              {400, "", "", `{` + spec + `, "payload": "\ud800"}`},
		"surrogates swapped":          {400, "", "", `{` + spec + `, "payload": "\udc00\ud800"}`},
		"lone surrogate in a name":    {400, "", "", `{` + spec + `, "payload": {"\udfff": 1}}`},
		"not UTF-8":                   {400, "", "", `{` + spec + `, "note": "` + "\xff" + `"}`},
		"overlong UTF-8":              {400, "", "", `{` + spec + `, "note": "` + "\xc0\xaf" + `"}`},
		"surrogate in UTF-8":          {400, "", "", `{` + spec + `, "note": "` + "\xed\xa0\x80" + `"}`},
		"raw control character":       {400, "", "", `{` + spec + `, "note": "a` + "\x01" + `"}`},
		"NUL in the payload":          {422, "", "", `{` + spec + `, "payload": {"a": ["\u0000"]}}`},
		"NUL in a payload's name":     {422, "", "", `{` + spec + `, "payload": {"\u0000": 1}}`},
		"NUL in the note":             {422, "", "", `{` + spec + `, "note": "\u0000"}`},
		"NUL in a label":              {422, "", "", `{` + spec + `, "labels": {"a": "\u0000"}}`},
		"NUL in a label's name":       {422, "", "", `{` + spec + `, "labels": {"\u0000": "a"}}`},
		"NUL in the zone":             {422, "", "", `{"spec": {"cron": "0 8 * * *", "timezone": "UTC\u0000"}}`},
		"NUL in the cron":             {422, "", "", `{"spec": {"cron": "0 8 * * *\u0000"}}`},
		"NUL in the rule":             {422, "", "", `{"spec": {"rrule": "\u0000"}}`},
		"NUL in a comment":            {422, "", "", `{"spec": {"calendars": [{"comment": "\u0000"}]}}`},
		"NUL in a calendar's name":    {422, "", "", `{"spec": {"cron": "0 8 * * *", "exclude": {"named": ["\u0000"]}}}`},
		"128 deep":                    {0, "", "", nested(127)},
		"129 deep":                    {400, "", "", nested(200)},
		"100,000 deep":                {400, "", "", nested(100_000)},
		"number beyond an integer":    {422, "", "", `{` + spec + `, "delivery": {"max_attempts": 123456789012345678901234567890}}`},
		"number beyond 2^53":          {422, "", "", `{` + spec + `, "delivery": {"priority": 9007199254740993}}`},
		"number with a fraction":      {422, "", "", `{` + spec + `, "delivery": {"max_attempts": 1.5}}`},
		"number with an exponent":     {422, "", "", `{` + spec + `, "delivery": {"max_attempts": 1e2}}`},
		"number of a text":            {422, "", "", `{` + spec + `, "delivery": {"max_attempts": "10"}}`},
		"huge number in the payload":  {0, "", "", `{` + spec + `, "payload": 1e999999999}`},
		"long number in the payload":  {0, "", "", `{` + spec + `, "payload": ` + strings.Repeat("9", 60_000) + `}`},
		"payload above its quota":     {413, "", "", `{` + spec + `, "payload": "` + strings.Repeat("x", 70_000) + `"}`},
		"body above its limit":        {413, "", "", `{` + spec + `, "payload": "` + strings.Repeat("x", 2<<20) + `"}`},
		"gzip bomb":                   {413, "", "gzip", zip(bytes.Repeat([]byte(" "), 64<<20))},
		"gzip in gzip":                {400, "", "gzip", zip([]byte(zip([]byte(`{` + spec + `}`))))},
		"gzip cut":                    {400, "", "gzip", zip([]byte(`{` + spec + `}`))[:20]},
		"gzip that is none":           {400, "", "gzip", `{` + spec + `}`},
		"gzip twice named":            {415, "", "gzip, gzip", `{` + spec + `}`},
		"deflate":                     {415, "", "deflate", `{` + spec + `}`},
		"form":                        {415, "application/x-www-form-urlencoded", "", `spec=x`},
		"text":                        {415, "text/plain", "", `{` + spec + `}`},
		"XML":                         {415, "application/xml", "", `<!DOCTYPE x [<!ENTITY y SYSTEM "file:///etc/passwd">]><x>&y;</x>`},
		"JSON in Latin 1":             {415, "application/json; charset=iso-8859-1", "", `{` + spec + `}`},
		"JSON in UTF-7":               {415, "application/json; charset=utf-7", "", `{` + spec + `}`},
		"two media types":             {415, "application/json, text/plain", "", `{` + spec + `}`},
		"empty":                       {400, "", "", ``},
		"null":                        {422, "", "", `null`},
		"array":                       {422, "", "", `[{` + spec + `}]`},
		"control in a label":          {0, "", "", `{` + spec + `, "labels": {"a": "\u0007"}}`},
	} {
		h := http.Header{"Content-Type": {"application/json"}}
		if c.media != "" {
			h.Set("Content-Type", c.media)
		}
		if c.encoding != "" {
			h.Set("Content-Encoding", c.encoding)
		}
		got, ok := s.ask(t, client, token, "PUT", "/v1/workflows/w/schedules/k", h, []byte(c.body), patience)
		if !ok || c.status != 0 && got.status != c.status || got.status >= 500 {
			t.Errorf("%s: got %d %.300s, want %d", name, got.status, got.body, c.status)
		}
		text := strings.ToLower(requestID.ReplaceAllString(string(got.body), "")) // random letters can form any word
		if strings.Contains(text, "sqlstate") || strings.Contains(text, "goroutine") || strings.Contains(text, "pgx") {
			t.Errorf("%s: the answer shows what is inside: %s", name, got.body)
		}
	}
}

// Wrong tokens of every kind, at a route of each kind. The verifier has tests of its own.
func TestTokensThatDeceive(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	good := s.mint(t, "acme", tenants.SchedulesRead)
	parts := strings.Split(good, ".")
	enc := base64.RawURLEncoding.EncodeToString
	object := func(part string) map[string]any {
		raw, err := base64.RawURLEncoding.DecodeString(part)
		if err != nil {
			t.Fatal(err)
		}
		var o map[string]any
		if err := json.Unmarshal(raw, &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	header := func(h map[string]any) string {
		if _, ok := h["kid"]; !ok {
			h["kid"] = object(parts[0])["kid"]
		}
		return enc(marshal(t, h)) + "." + parts[1] + "." + parts[2]
	}
	claims := func(change func(map[string]any)) string {
		c := object(parts[1])
		change(c)
		return parts[0] + "." + enc(marshal(t, c)) + "." + parts[2]
	}
	last := byte('A')
	if good[len(good)-3] == last {
		last = 'B'
	}
	tokens := map[string]string{
		"alg none": header(map[string]any{"alg": "none", "typ": "JWT"}), "alg None": header(map[string]any{"alg": "None"}), "alg nOnE": header(map[string]any{"alg": "nOnE"}), "no alg": header(map[string]any{"typ": "JWT"}), "alg of a number": header(map[string]any{"alg": 1}),
		"alg HS256": header(map[string]any{"alg": "HS256"}), "alg eddsa": header(map[string]any{"alg": "eddsa"}), "alg ES256": header(map[string]any{"alg": "ES256"}), "alg PS256": header(map[string]any{"alg": "PS256"}),
		"crit": header(map[string]any{"alg": "EdDSA", "crit": []string{"x"}}), "b64": header(map[string]any{"alg": "EdDSA", "b64": false}), "kid of a path": header(map[string]any{"alg": "EdDSA", "kid": "../../etc/passwd"}), "kid of SQL": header(map[string]any{"alg": "EdDSA", "kid": "' OR 1=1 --"}),
		"jku": header(map[string]any{"alg": "EdDSA", "jku": "https://evil.example/"}), "jwk": header(map[string]any{"alg": "EdDSA", "jwk": map[string]any{"kty": "OKP"}}), "x5u": header(map[string]any{"alg": "EdDSA", "x5u": "https://evil.example/"}), "typ": header(map[string]any{"alg": "EdDSA", "typ": "secevent+jwt"}),
		"no signature": parts[0] + "." + parts[1] + ".", "two parts": parts[0] + "." + parts[1], "four parts": good + ".x", "five parts": good + ".x.y", "empty parts": "..", "padded": good + "=", "changed signature": good[:len(good)-3] + string(last) + good[len(good)-2:], "cut signature": good[:len(good)-8],
		"another tenant": claims(func(c map[string]any) { c["tenant"] = "other" }), "more scopes": claims(func(c map[string]any) { c["scope"] = "platform:admin" }), "a longer life": claims(func(c map[string]any) { c["exp"] = time.Now().AddDate(1, 0, 0).Unix() }),
		"no exp": claims(func(c map[string]any) { delete(c, "exp") }), "exp of a text": claims(func(c map[string]any) { c["exp"] = "9999999999" }), "another audience": claims(func(c map[string]any) { c["aud"] = "other" }), "another issuer": claims(func(c map[string]any) { c["iss"] = "https://evil.example" }),
		"9 KiB": strings.Repeat("x", 9<<10), "parts of 9 KiB": good + strings.Repeat("A", 9<<10), "standard base64": strings.ReplaceAll(good, "-", "+") + "/", "quoted": `"` + good + `"`, "two": good + "," + good, "blank within": good[:20] + " " + good[20:], "not ASCII": good + "é",
	}
	for name, token := range tokens {
		for _, path := range []string{"/v1/schedules", "/v1/admin/api-keys", "/v1/platform/tenants"} {
			got, ok := s.ask(t, client, token, "GET", path, nil, nil, patience)
			if !ok || got.status != http.StatusUnauthorized || !strings.HasPrefix(got.header.Get("WWW-Authenticate"), `Bearer error="invalid_token"`) {
				t.Errorf("%s at %s: got %d %q %s", name, path, got.status, got.header.Get("WWW-Authenticate"), got.body)
			}
		}
	}
	for name, h := range map[string]http.Header{
		"none": {}, "basic": {"Authorization": {"Basic " + good}}, "bare": {"Authorization": {good}}, "scheme alone": {"Authorization": {"Bearer"}}, "scheme and blank": {"Authorization": {"Bearer "}},
		"cookie": {"Cookie": {"token=" + good}}, "another header": {"X-Authorization": {"Bearer " + good}}, "proxy's": {"Proxy-Authorization": {"Bearer " + good}}, "two headers": {"Authorization": {"Bearer x.y.z", "Bearer " + good}},
		"forwarded user": {"X-Forwarded-User": {"root"}, "X-Tenant": {"acme"}},
	} {
		for _, path := range []string{"/v1/schedules", "/v1/quotas"} {
			if got, ok := s.ask(t, client, "", "GET", path, h, nil, patience); !ok || got.status != http.StatusUnauthorized || !strings.HasPrefix(got.header.Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("%s at %s: got %d %s", name, path, got.status, got.body)
			}
		}
	}
	for _, query := range []string{"access_token", "token", "authorization", "api_key"} {
		if got, ok := s.ask(t, client, "", "GET", "/v1/quotas?"+query+"="+good, nil, nil, patience); !ok || got.status != http.StatusUnauthorized {
			t.Errorf("a token as %s in the query: got %d", query, got.status)
		}
	}
	for _, method := range []string{"X-HTTP-Method-Override", "X-Original-URL", "X-Rewrite-URL"} {
		h := http.Header{method: {"DELETE"}, "X-Forwarded-Host": {"evil.example"}}
		if got, ok := s.ask(t, client, good, "GET", "/v1/schedules", h, nil, patience); !ok || got.status != http.StatusOK || strings.Contains(string(got.body), "evil") {
			t.Errorf("%s: got %d %s", method, got.status, got.body)
		}
	}
}

// Each example body with U+0000 in any of its texts is refused with 4xx.
func TestNULInEveryText(t *testing.T) {
	t.Parallel()
	s, client := serveHouse(t), checked(t)
	operator, platform := s.mint(t, "acme", tenants.TenantAdmin), s.mint(t, "", tenants.PlatformAdmin)
	tainted := 0
	for _, a := range documented(t) {
		if a.media == "" || a.media == "application/x-ndjson" || !strings.HasPrefix(a.path, "/v1/") {
			continue
		}
		token := operator
		if a.platform() {
			token = platform
		}
		values := map[string]string{"id": "tick_0a1b2c3d4e5f6g7h8i9jklmnop"}
		for _, p := range a.params {
			if p.Value.In == "path" && values[p.Value.Name] == "" {
				values[p.Value.Name] = "x"
			}
		}
		for _, example := range a.bodies {
			for n := 0; ; n++ {
				left := n
				body := taint(example, &left)
				if left >= 0 {
					break
				}
				tainted++
				got, ok := s.ask(t, client, token, a.method, a.fill(values), http.Header{"Content-Type": {a.media}}, marshal(t, body), patience)
				if !ok || got.status < 400 || got.status > 499 {
					t.Errorf("%s %s: got %d %.300s", a.id, marshal(t, body), got.status, got.body)
				}
			}
		}
	}
	if tainted < 50 {
		t.Errorf("only %d texts were tried", tainted)
	}
}

// taint puts a NUL into the n-th text of v, and makes n negative.
func taint(v any, n *int) any {
	switch v := v.(type) {
	case string:
		*n--
		if *n == -1 {
			return v + "\x00"
		}
	case []any:
		out := []any{}
		for _, e := range v {
			out = append(out, taint(e, n))
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			out[name] = taint(v[name], n)
		}
		return out
	}
	return v
}

// Requests that a proxy and a server could read differently, sent to the real listener.
func TestRequestsThatCanBeReadInTwoWays(t *testing.T) {
	t.Parallel()
	s := serveHouse(t)
	address := webtest.Serve(t, s.router)
	head := "POST /v1/schedules/preview HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " + s.mint(t, "acme", tenants.TenantAdmin) + "\r\n"
	const chunks = "2\r\n{}\r\n0\r\n\r\n"
	for name, text := range map[string]string{
		"length and chunks":      head + "Content-Length: 12\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks,
		"chunks and length":      head + "Transfer-Encoding: chunked\r\nContent-Length: 12\r\n\r\n" + chunks,
		"two lengths":            head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
		"a list of lengths":      head + "Content-Length: 2, 3\r\n\r\n{} ",
		"signed length":          head + "Content-Length: +2\r\n\r\n{}",
		"negative length":        head + "Content-Length: -1\r\n\r\n{}",
		"hexadecimal length":     head + "Content-Length: 0x2\r\n\r\n{}",
		"vast length":            head + "Content-Length: 99999999999999999999\r\n\r\n{}",
		"another coding":         head + "Transfer-Encoding: identity\r\n\r\n{}",
		"two codings":            head + "Transfer-Encoding: gzip, chunked\r\n\r\n" + chunks,
		"coding twice":           head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks,
		"coding in quotes":       head + "Transfer-Encoding: \"chunked\"\r\n\r\n" + chunks,
		"coding with a tab":      head + "Transfer-Encoding:\x0bchunked\r\n\r\n" + chunks,
		"blank before the colon": head + "Transfer-Encoding : chunked\r\n\r\n" + chunks,
		"folded header":          head + "X: a\r\n b\r\nContent-Length : 2\r\n\r\n{}",
		"negative chunk":         head + "Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
		"vast chunk":             head + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}\r\n0\r\n\r\n",
		"chunk without an end":   head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}xx0\r\n\r\n",
		"NUL in a header":        head + "X: a\x00b\r\nContent-Length: 2\r\n\r\n{}",
		"two hosts":              head + "Host: y\r\nContent-Length: 2\r\n\r\n{}",
		"version 3":              "GET / HTTP/3.0\r\nHost: x\r\n\r\n",
		"no version":             "GET /\r\n\r\n",
		"HTTP/2 by guess":        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"TLS":                    "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
		"method with a slash":    "GE/T / HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := c.Write([]byte(text)); err != nil {
			t.Error(err)
		}
		if half, ok := c.(*net.TCPConn); ok {
			_ = half.CloseWrite()
		}
		got, err := io.ReadAll(c)
		_ = c.Close()
		if n := bytes.Count(got, []byte("HTTP/1.1 ")); err != nil || n != 1 || !bytes.HasPrefix(got, []byte("HTTP/1.1 4")) {
			t.Errorf("%s: %d answers, %v:\n%s", name, n, err, got)
		}
	}
}
