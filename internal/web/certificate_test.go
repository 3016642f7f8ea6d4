package web

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writeCertificate writes a self-signed certificate of that number and its key to the two files.
func writeCertificate(t *testing.T, certFile, keyFile string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(serial, 0) // a file system may keep seconds only
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
}

func TestACertificateIsReadAgain(t *testing.T) {
	t.Parallel()
	certFile, keyFile := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	writeCertificate(t, certFile, keyFile, 1)
	var log bytes.Buffer
	c, err := LoadCertificate(certFile, keyFile, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	c.now = func() time.Time { return now }
	want := func(serial int64) {
		t.Helper()
		got, err := c.TLS().GetCertificate(&tls.ClientHelloInfo{})
		if err != nil || got.Leaf.SerialNumber.Int64() != serial {
			t.Errorf("got %v, %v, want %d", got.Leaf.SerialNumber, err, serial)
		}
	}
	want(1)
	writeCertificate(t, certFile, keyFile, 2)
	want(1)
	now = now.Add(time.Minute)
	want(2)
	if err := os.WriteFile(certFile, []byte("half a certif"), 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	want(2)
	if !strings.Contains(log.String(), "the old one stays in use") {
		t.Errorf("logged %s", &log)
	}
	if err := os.Remove(keyFile); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	want(2)
	if _, err := LoadCertificate(certFile, keyFile, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a missing key is no error")
	}
}
