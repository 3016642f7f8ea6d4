package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
)

// testCertificate writes the certificate of httptest, which is for 127.0.0.1, and returns a client that trusts it.
func testCertificate(t *testing.T) (certFile, keyFile string, client *http.Client) {
	t.Helper()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	pair := s.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, keyFile: {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile, s.Client()
}

func TestServeSpeaksTLS(t *testing.T) {
	t.Parallel()
	certFile, keyFile, client := testCertificate(t)
	s := serveOn(t, map[string]string{
		"DATABASE_URL":           postgrestest.URL(t),
		"CARILLON_CLEAR_SECRETS": "true",
		"CARILLON_ISSUER_KEY":    "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
	}, "--tls-cert", certFile, "--tls-key", keyFile)
	var answer *http.Response
	until(t, "it is ready", func() bool {
		var err error
		if answer, err = client.Get("https://" + s.Listen + "/readyz"); err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode != http.StatusServiceUnavailable
	})
	if answer.StatusCode != http.StatusOK || answer.TLS == nil || answer.Proto != "HTTP/1.1" {
		t.Errorf("got %s %d, %v", answer.Proto, answer.StatusCode, answer.TLS)
	}
	// The checks on the wire also work within TLS.
	conn, err := tls.Dial("tcp", s.Listen, client.Transport.(*http.Transport).TLSClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	answer, err = http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusBadRequest {
		t.Errorf("got %d for a request of two lengths", answer.StatusCode)
	}
}

func TestServeWarnsOfPlaintext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		settings serveSettings
		warns    bool
	}{
		{serveSettings{Role: "all", Listen: ":8080"}, true},
		{serveSettings{Role: "api", Listen: "10.0.0.1:8080"}, true},
		{serveSettings{Role: "sweep", Listen: ":8080"}, false},
		{serveSettings{Role: "all", Listen: "127.0.0.1:8080"}, false},
		{serveSettings{Role: "all", Listen: ":8080", TLSCert: "cert.pem", TLSKey: "key.pem"}, false},
		{serveSettings{Role: "all", Listen: ":8080", Proxies: networks{[]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}, false},
	} {
		var log bytes.Buffer
		c.settings.warnOfPlaintext(slog.New(slog.NewTextHandler(&log, nil)))
		if got := log.Len() > 0; got != c.warns {
			t.Errorf("%+v: logged %q", c.settings, &log)
		}
	}
}
