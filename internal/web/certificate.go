package web

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificateAge is how long Certificate waits before it checks its files again.
const certificateAge = 10 * time.Second

// Certificate is a TLS certificate and its private key, from two PEM files. When the files change, new connections use the new
// certificate within ten seconds.
type Certificate struct {
	certFile, keyFile string
	log               *slog.Logger
	now               func() time.Time

	mu      sync.Mutex
	current *tls.Certificate
	version string    // of the files
	checked time.Time // when the files were last checked
}

// LoadCertificate reads a certificate with its chain, and its private key.
func LoadCertificate(certFile, keyFile string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, log: log, now: time.Now}
	if err := c.load(); err != nil {
		return nil, err
	}
	return c, nil
}

// TLS returns the configuration of a server with this certificate.
func (c *Certificate) TLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: c.get}
}

// get returns the certificate for a new connection. It keeps the old certificate if the files are unreadable.
func (c *Certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now().Sub(c.checked) > certificateAge {
		if err := c.load(); err != nil {
			c.log.Error("cannot reload the TLS certificate: the old one stays in use", "error", err)
		}
	}
	return c.current, nil
}

// load reads the files if they have changed since the last load.
func (c *Certificate) load() error {
	c.checked = c.now()
	version, err := versionOf(c.certFile, c.keyFile)
	if err != nil || version == c.version {
		return err
	}
	read, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("TLS certificate %s with key %s: %w", c.certFile, c.keyFile, err)
	}
	if c.current != nil {
		c.log.Info("the TLS certificate was renewed", "expires", read.Leaf.NotAfter)
	}
	c.current, c.version = &read, version
	return nil
}

// versionOf returns a text that changes with the modification times and sizes of the files.
func versionOf(files ...string) (version string, err error) {
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			return "", fmt.Errorf("TLS: %w", err)
		}
		version += fmt.Sprint(info.ModTime().UnixNano(), " ", info.Size(), " ")
	}
	return version, nil
}
