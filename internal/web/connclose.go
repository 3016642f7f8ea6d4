package web

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Write replaces the plain-text answers that net/http itself writes to an unreadable request by problem documents. It answers 400
// where net/http answers 501 or 505 to an unknown transfer coding or version, because that is also the client's mistake.
func (w *wire) Write(p []byte) (int, error) {
	text, ok := bareText(p)
	if !ok {
		n, err := w.Conn.Write(p)
		if err != nil {
			w.ended.Store(true)
		}
		return n, err
	}
	if _, err := w.Conn.Write(malformed(text)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// bareText returns the status line, without the version, of a plain-text answer that net/http itself wrote.
func bareText(p []byte) (line []byte, ok bool) {
	line, ok = bytes.CutPrefix(p, []byte("HTTP/1.1 "))
	if !ok {
		return nil, false
	}
	line, _, ok = bytes.Cut(line, []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"))
	return line, ok && !bytes.Contains(line, []byte("\r\n"))
}

// malformed returns the answer to an unreadable request. line is the status line of net/http's own answer.
func malformed(line []byte) []byte {
	code, why, _ := bytes.Cut(line, []byte(" "))
	status, err := strconv.Atoi(string(code))
	if err != nil || status > 499 {
		status = http.StatusBadRequest
	}
	doc := struct {
		Code     string `json:"code"`
		Detail   string `json:"detail"`
		Instance string `json:"instance"`
		Status   int    `json:"status"`
		Title    string `json:"title"`
		Type     string `json:"type"`
	}{"malformed_request", "the request cannot be read as HTTP/1.1", rand.Text(), status, http.StatusText(status), "about:blank"}
	if status == http.StatusRequestHeaderFieldsTooLarge {
		doc.Code, doc.Detail = "headers_too_large", "the request line and the headers are too large"
	}
	if _, reason, ok := bytes.Cut(why, []byte(": ")); ok {
		doc.Detail += ": " + string(reason)
	}
	body, _ := json.Marshal(doc) // strings and a number always encode
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nCache-Control: no-store\r\nConnection: close\r\nContent-Length: %d\r\nContent-Type: application/problem+json\r\nX-Content-Type-Options: nosniff\r\nX-Request-Id: %s\r\n\r\n%s",
		status, doc.Title, len(body), doc.Instance, body)
}

// How long, and how many bytes, the server reads after it has closed its side of a connection.
const (
	lingerTime  = 5 * time.Second
	lingerBytes = 64 << 20
)

// CloseWrite closes the server's side of the connection, and discards the bytes that the client still sends (lingering close). If the
// server closed both sides, unread bytes would reset the connection, and the client could lose the answer to a refused request.
func (w *wire) CloseWrite() error {
	w.lingered.Store(true)
	half, ok := w.Conn.(interface{ CloseWrite() error })
	if !ok {
		return nil
	}
	if err := half.CloseWrite(); err != nil {
		return err
	}
	if err := w.SetReadDeadline(time.Now().Add(lingerTime)); err != nil {
		return err
	}
	_, _ = io.CopyN(io.Discard, w.Conn, lingerBytes) // an error ends the connection as well
	return nil
}
