package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/tenants"
)

// knows identifies one key.
func knows(_ context.Context, credential string) (tenants.Identity, error) {
	if credential != "carillon_key_good" {
		return tenants.Identity{}, fault.New(http.StatusUnauthorized, "invalid_token", "the API key is not valid")
	}
	return tenants.Identity{Tenant: 1, TenantName: "acme", Subject: "key_1"}, nil
}

type sent struct {
	method, url, body string
	cookie            *http.Cookie
	header            map[string]string
}

func (s sent) to(t *testing.T, e *echo.Echo) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), s.method, s.url, strings.NewReader(s.body))
	if s.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range s.header {
		r.Header.Set(name, value)
	}
	if s.cookie != nil {
		r.AddCookie(s.cookie)
	}
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, answer *http.Response) string {
	t.Helper()
	b := make([]byte, 1000)
	n, _ := answer.Body.Read(b)
	return string(b[:n])
}

const goodKey = `{"api_key": "carillon_key_good"}`

func TestASessionIsACookieThatNoScriptCanRead(t *testing.T) {
	t.Parallel()
	e, _ := server(t, knows)
	answer := sent{method: "POST", url: "https://carillon.example/console/session", body: goodKey, header: map[string]string{"X-Forwarded-Proto": "https"}}.to(t, e)
	cookies := answer.Cookies()
	if answer.StatusCode != http.StatusOK || len(cookies) != 1 {
		t.Fatalf("got %d %s", answer.StatusCode, text(t, answer))
	}
	c := cookies[0]
	if c.Name != "__Host-carillon" || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || c.MaxAge < 43100 {
		t.Errorf("got %+v", c)
	}
	if strings.Contains(c.Value, "good") {
		t.Error("the cookie shows the key")
	}
	local := sent{method: "POST", url: "http://127.0.0.1:8080/console/session", body: goodKey}.to(t, e)
	if c := local.Cookies(); len(c) != 1 || c[0].Name != "carillon-8080" || c[0].Secure {
		t.Errorf("on loopback: got %d %v", local.StatusCode, c)
	}
}

func TestASignInWithoutHTTPSIsRefused(t *testing.T) {
	t.Parallel()
	e, _ := server(t, knows)
	answer := sent{method: "POST", url: "http://carillon.example/console/session", body: goodKey}.to(t, e)
	if len(answer.Cookies()) != 0 || answer.StatusCode == http.StatusOK {
		t.Errorf("got %d %v", answer.StatusCode, answer.Cookies())
	}
}

// The cookie counts only for the console's own requests, and a header that was sent wins.
func TestTheCookieIsForTheConsoleAlone(t *testing.T) {
	t.Parallel()
	e, s := server(t, knows)
	in := sent{method: "POST", url: "http://127.0.0.1:8080/console/session", body: goodKey}.to(t, e)
	cookie := in.Cookies()[0]
	const self = "http://127.0.0.1:8080/v1/self"
	own := map[string]string{mark: "1", "Sec-Fetch-Site": "same-origin"}
	for name, c := range map[string]struct {
		sent
		want string
	}{
		"the console":          {sent{"GET", self, "", cookie, own}, "Bearer carillon_key_good"},
		"its change":           {sent{"POST", self, "{}", cookie, own}, "Bearer carillon_key_good"},
		"a link":               {sent{"GET", self, "", cookie, map[string]string{"Sec-Fetch-Site": "same-origin"}}, ""},
		"a form elsewhere":     {sent{"POST", self, "{}", cookie, map[string]string{"Sec-Fetch-Site": "cross-site"}}, ""},
		"a header":             {sent{"GET", self, "", cookie, map[string]string{mark: "1", "Authorization": "Bearer other"}}, "Bearer other"},
		"no cookie":            {sent{"GET", self, "", nil, own}, ""},
		"another's cookie":     {sent{"GET", self, "", &http.Cookie{Name: cookie.Name, Value: "AAAA" + cookie.Value[4:]}, own}, ""},
		"another port's":       {sent{"GET", "http://127.0.0.1:9090/v1/self", "", cookie, own}, ""},
		"a cookie of a cursor": {sent{"GET", self, "", &http.Cookie{Name: cookie.Name, Value: cursor(t, s)}, own}, ""},
	} {
		if got := text(t, c.sent.to(t, e)); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	other := sent{"POST", self, "{}", cookie, map[string]string{mark: "1", "Sec-Fetch-Site": "cross-site"}}.to(t, e)
	if other.StatusCode == http.StatusOK {
		t.Error("a change from another origin was let through")
	}
}

// cursor returns a session's content as the position of a list. A client can get such positions encrypted under the same secret.
func cursor(t *testing.T, s *Sessions) string {
	t.Helper()
	text, err := s.cursors.Seal(1, "schedules", session{Credential: "carillon_key_good", Until: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestACodeIsGoodOnce(t *testing.T) {
	t.Parallel()
	e, s := server(t, knows)
	code, err := s.Code("carillon_key_good")
	if err != nil {
		t.Fatal(err)
	}
	enter := sent{method: "GET", url: "http://127.0.0.1:8080/console/enter?code=" + code}
	first, second := enter.to(t, e), enter.to(t, e)
	if first.StatusCode != http.StatusSeeOther || len(first.Cookies()) != 1 || first.Header.Get("Location") != "/console/" {
		t.Errorf("got %d %v", first.StatusCode, first.Header)
	}
	if len(second.Cookies()) != 0 || second.Header.Get("Location") != "/console/sign-in?why=code" {
		t.Errorf("again: got %d %v", second.StatusCode, second.Header)
	}
	if answer := (sent{method: "POST", url: "http://127.0.0.1:8080/console/code", cookie: first.Cookies()[0], header: map[string]string{mark: "1"}}).to(t, e); answer.StatusCode == http.StatusCreated {
		t.Error("a browser's cookie made a code")
	}
}

// A link on another page signs nobody in. Its code stays valid, so a person who sees the link in a web chat or a web terminal can paste it
// into the address bar.
func TestALinkOnAnotherPageSignsNobodyIn(t *testing.T) {
	t.Parallel()
	e, s := server(t, knows)
	code, err := s.Code("carillon_key_good")
	if err != nil {
		t.Fatal(err)
	}
	enter := func(site string) *http.Response {
		return sent{method: "GET", url: "http://127.0.0.1:8080/console/enter?code=" + code, header: map[string]string{"Sec-Fetch-Site": site}}.to(t, e)
	}
	for _, site := range []string{"cross-site", "same-site"} {
		if answer := enter(site); len(answer.Cookies()) != 0 || answer.Header.Get("Location") != "/console/sign-in?why=elsewhere" {
			t.Errorf("%s: got %d %v", site, answer.StatusCode, answer.Header)
		}
	}
	if answer := enter("none"); len(answer.Cookies()) != 1 || answer.Header.Get("Location") != "/console/" {
		t.Errorf("from the address bar: got %d %v", answer.StatusCode, answer.Header)
	}
}

func TestSigningOutRemovesTheCookie(t *testing.T) {
	t.Parallel()
	e, _ := server(t, knows)
	out := sent{method: "DELETE", url: "http://127.0.0.1:8080/console/session", header: map[string]string{"Sec-Fetch-Site": "same-origin"}}.to(t, e)
	if c := out.Cookies(); out.StatusCode != http.StatusNoContent || len(c) != 1 || c[0].MaxAge >= 0 {
		t.Errorf("got %d %v", out.StatusCode, c)
	}
}
