package console

import (
	"crypto/rand"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
)

const (
	codeLasts = time.Minute
	mostCodes = 1000
)

// codes holds the codes in the memory of one process. Each code opens one session.
type codes struct {
	mu   sync.Mutex
	made map[string]code
}

type code struct {
	credential string
	until      time.Time
}

// Code returns a code with which GET /console/enter?code=… opens a session with the credential: once, and within a minute.
func (s *Sessions) Code(credential string) (string, error) {
	k := &s.codes
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	for name, c := range k.made {
		if !now.Before(c.until) {
			delete(k.made, name)
		}
	}
	if len(k.made) >= mostCodes {
		f := fault.New(http.StatusTooManyRequests, "rate_limited", "too many codes wait to be used")
		f.RetryAfter = codeLasts
		return "", f
	}
	if k.made == nil {
		k.made = map[string]code{}
	}
	name := rand.Text()
	k.made[name] = code{credential, now.Add(codeLasts)}
	return name, nil
}

// take returns the credential of a code, and makes the code invalid.
func (k *codes) take(name string) (string, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, ok := k.made[name]
	delete(k.made, name)
	return c.credential, ok && time.Now().Before(c.until)
}

// codeAnswer is the answer of POST /console/code. Path opens the console with the code.
type codeAnswer struct {
	Path string `json:"path"`
}

// code gives a code to a program that sends a credential, such as `carillon open`. It does not accept the cookie of a browser.
func (s *Sessions) code(c echo.Context) error {
	credential, ok := strings.CutPrefix(c.Request().Header.Get("Authorization"), "Bearer ")
	if !ok {
		f := fault.New(http.StatusUnauthorized, "unauthenticated", "this route needs a token: Authorization: Bearer …")
		f.Header = map[string]string{"WWW-Authenticate": "Bearer"}
		return f
	}
	if _, err := s.identify(c.Request().Context(), credential); err != nil {
		return err
	}
	name, err := s.Code(credential)
	if err != nil {
		return err
	}
	return web.Answer(c, http.StatusCreated, codeAnswer{"/console/enter?code=" + name})
}

// enter opens a session and redirects to the console, so that no secret stays in the address. An invalid code redirects to the sign-in.
// A link on another page does so too, because it could sign the reader in with the key of the page's author. The code then stays valid,
// and the reader can paste the address.
func (s *Sessions) enter(c echo.Context) error {
	if from := c.Request().Header.Get("Sec-Fetch-Site"); from != "" && from != "none" && from != "same-origin" {
		return c.Redirect(http.StatusSeeOther, "/console/sign-in?why=elsewhere")
	}
	credential, ok := s.codes.take(c.QueryParam("code"))
	if !ok {
		return c.Redirect(http.StatusSeeOther, "/console/sign-in?why=code")
	}
	if _, err := s.begin(c, credential); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, "/console/")
}
