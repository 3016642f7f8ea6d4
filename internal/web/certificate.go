package web

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificateAge is how long a certificate is used before its files are looked at again.
const certificateAge = 10 * time.Second

// Certificate is a TLS certificate and its private key, in two PEM files. When the files change, new connections get the
// new certificate within certificateAge.
type Certificate struct {
	certFile, keyFile string
	log               *slog.Logger
	now               func() time.Time

	mu      sync.Mutex
	current *tls.Certificate
	version string    // of the files that it was read from
	looked  time.Time // when the files were last looked at
}

// LoadCertificate reads a certificate, with the chain that follows it, and its private key.
func LoadCertificate(certFile, keyFile string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, log: log, now: time.Now}
	if err := c.load(); err != nil {
		return nil, err
	}
	return c, nil
}

// TLS returns the configuration of a server that shows this certificate.
func (c *Certificate) TLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: c.get}
}

// get returns the certificate for a new connection. Files that cannot be read leave the old certificate in use.
func (c *Certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now().Sub(c.looked) > certificateAge {
		if err := c.load(); err != nil {
			c.log.Error("the TLS certificate cannot be read again: the old one stays in use", "error", err)
		}
	}
	return c.current, nil
}

// load reads the files if they changed since it last read them.
func (c *Certificate) load() error {
	c.looked = c.now()
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

// versionOf tells one content of files from another, by their times and sizes.
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
