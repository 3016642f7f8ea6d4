package console

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

// mark is a header of the console's own requests. A page of another origin could send it only after a CORS preflight, which this server
// refuses. So no link, form or image of another page can use the cookie, and no request of the reference page can.
const mark = "Carillon-Console"

// through is what the audit says of a change that came through the console.
const through = "console"

const (
	lasts      = 12 * time.Hour   // from the last time that its cookie was sent to the end of a session, at most
	renewAfter = 10 * time.Minute // a younger cookie is not sent again
	mostCookie = 3800             // bytes; browsers refuse a cookie of more than 4096
	sealedFor  = "console session"
	mostBody   = 8 << 10
)

// Identify returns the identity that owns a credential, which is an API key or a token. It returns a fault 401 for an invalid one.
type Identify func(ctx context.Context, credential string) (tenants.Identity, error)

// Sessions are the signed-in browsers. The server stores none of them: a cookie is the encrypted credential. So a session ends when its
// key is revoked.
type Sessions struct {
	cursors  *web.Cursor
	identify Identify
	codes    codes
	origins  *http.CrossOriginProtection
}

// NewSessions returns Sessions whose cookies are encrypted under the secret of the cursors.
func NewSessions(cursors *web.Cursor, identify Identify) *Sessions {
	return &Sessions{cursors: cursors, identify: identify, origins: http.NewCrossOriginProtection()}
}

// session is the content of a cookie.
type session struct {
	Credential string    `json:"c"`
	At         time.Time `json:"a"` // when the cookie was made
	Until      time.Time `json:"u"`
}

func (s *Sessions) routes(e *echo.Echo) {
	e.POST("/console/session", s.signIn, web.NoQuery, web.BodyLimit(mostBody))
	e.DELETE("/console/session", s.signOut, web.NoQuery)
	e.POST("/console/code", s.code, web.NoQuery)
	e.GET("/console/enter", s.enter)
}

// signInParams is the body of a sign-in: one of the two.
type signInParams struct {
	APIKey string `json:"api_key,omitempty"`
	Token  string `json:"token,omitempty"`
}

func (s *Sessions) signIn(c echo.Context) error {
	if err := s.same(c); err != nil {
		return err
	}
	p, err := web.Body[signInParams](c)
	if err != nil {
		return err
	}
	if (p.APIKey == "") == (p.Token == "") {
		return fault.Invalid("", "a sign-in has an api_key or a token")
	}
	who, err := s.begin(c, p.APIKey+p.Token)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusOK, map[string]string{"tenant": who.TenantName, "actor": who.Subject})
}

// begin sets the cookie of a new session.
func (s *Sessions) begin(c echo.Context, credential string) (tenants.Identity, error) {
	if !safe(c) {
		return tenants.Identity{}, fault.Forbidden("insecure", "this page came without https, so your key could be read on its way: open the console by https, or on the machine itself at http://127.0.0.1")
	}
	who, err := s.identify(c.Request().Context(), credential)
	if err != nil {
		return who, err
	}
	return who, s.send(c, session{Credential: credential}, who)
}

// send sets the cookie of a session that begins now or goes on.
func (s *Sessions) send(c echo.Context, kept session, who tenants.Identity) error {
	kept.At = time.Now()
	kept.Until = kept.At.Add(lasts)
	if who.ExpiresAt != nil && who.ExpiresAt.Before(kept.Until) {
		kept.Until = *who.ExpiresAt
	}
	value, err := s.cursors.Seal(0, sealedFor, kept)
	if err != nil {
		return err
	}
	if len(value) > mostCookie {
		return fault.Invalid("/token", "the token is too long for a cookie: sign in with an API key")
	}
	c.SetCookie(cookie(c, value, int(time.Until(kept.Until)/time.Second)))
	return nil
}

// cookie returns the session's cookie. A cookie with the prefix __Host- must be Secure, which loopback without https cannot have; there
// its name has the port, because cookies do not tell ports apart.
func cookie(c echo.Context, value string, seconds int) *http.Cookie {
	name := "__Host-carillon"
	if c.Scheme() != "https" {
		name = "carillon"
		if _, port, err := net.SplitHostPort(c.Request().Host); err == nil {
			name += "-" + port
		}
	}
	return &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, Secure: c.Scheme() == "https", SameSite: http.SameSiteStrictMode}
}

func (s *Sessions) signOut(c echo.Context) error {
	if err := s.same(c); err != nil {
		return err
	}
	c.SetCookie(cookie(c, "", -1))
	return c.NoContent(http.StatusNoContent)
}

// same returns a fault for a request that a page of another origin has caused.
func (s *Sessions) same(c echo.Context) error {
	if err := s.origins.Check(c.Request()); err != nil {
		return fault.Forbidden("cross_origin", "the request comes from another page")
	}
	return nil
}

// safe reports whether nobody can read the request on its way: it has https, or stays on the machine. Browsers treat loopback alike.
func safe(c echo.Context) bool {
	host := (&url.URL{Host: c.Request().Host}).Hostname()
	return c.Scheme() == "https" || host == "localhost" || net.ParseIP(host).IsLoopback()
}

// Authorize is middleware for the requests of the API. It sets the Authorization header of the console's own requests to the credential
// in their cookie, unless the request already has that header. It belongs before tenants.Authenticate, which checks the credential.
func (s *Sessions) Authorize(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if r.Header.Get(mark) == "" || len(r.Header["Authorization"]) > 0 {
			return next(c)
		}
		kept, ok := s.read(c)
		if !ok {
			return next(c)
		}
		if err := s.same(c); err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+kept.Credential)
		c.SetRequest(r.WithContext(tenants.Through(r.Context(), through)))
		if time.Since(kept.At) > renewAfter {
			c.Response().Before(func() { s.renew(c, kept) })
		}
		return next(c)
	}
}

// renew extends a session, unless its credential is no longer valid.
func (s *Sessions) renew(c echo.Context, kept session) {
	if c.Response().Status == http.StatusUnauthorized {
		return
	}
	if who, err := s.identify(c.Request().Context(), kept.Credential); err == nil {
		_ = s.send(c, kept, who) // the old cookie is valid for longer
	}
}

// read returns the session of the request's cookie.
func (s *Sessions) read(c echo.Context) (kept session, ok bool) {
	sent, err := c.Cookie(cookie(c, "", 0).Name)
	if err != nil || s.cursors.Open(0, sealedFor, sent.Value, &kept) != nil {
		return kept, false
	}
	return kept, time.Now().Before(kept.Until)
}
