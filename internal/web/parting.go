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

// Write makes a problem document of what net/http answers by itself, as bare text, to a request that it cannot read. The
// 501 and 505 among these, to a transfer coding and a version that it does not know, are the client's fault too: 400.
func (w *wire) Write(p []byte) (int, error) {
	text, ok := bareText(p)
	if !ok {
		return w.Conn.Write(p)
	}
	if _, err := w.Conn.Write(malformed(text)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// bareText is the status line, without the version, of an answer in the form that net/http alone writes.
func bareText(p []byte) (line []byte, ok bool) {
	line, ok = bytes.CutPrefix(p, []byte("HTTP/1.1 "))
	if !ok {
		return nil, false
	}
	line, _, ok = bytes.Cut(line, []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"))
	return line, ok && !bytes.Contains(line, []byte("\r\n"))
}

// malformed is the answer to a request that cannot be read, by the status line that net/http has for it.
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
		doc.Code, doc.Detail = "headers_too_large", "the request's line and headers are larger than may be"
	}
	if _, reason, ok := bytes.Cut(why, []byte(": ")); ok {
		doc.Detail += ": " + string(reason)
	}
	body, _ := json.Marshal(doc) // of texts and a number: it cannot go wrong
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nCache-Control: no-store\r\nConnection: close\r\nContent-Length: %d\r\nContent-Type: application/problem+json\r\nX-Content-Type-Options: nosniff\r\nX-Request-Id: %s\r\n\r\n%s",
		status, doc.Title, len(body), doc.Instance, body)
}

// How long, and how much, a client may still send once it has its answer and we are to hang up.
const (
	partingTime  = 5 * time.Second
	partingBytes = 64 << 20
)

// CloseWrite ends our side of the connection, and reads over what the client still sends: it could not see the answer to
// a request that was refused before its end if we hung up, as what nobody has read resets the connection.
func (w *wire) CloseWrite() error {
	half, ok := w.Conn.(interface{ CloseWrite() error })
	if !ok {
		return nil
	}
	if err := half.CloseWrite(); err != nil {
		return err
	}
	if err := w.SetReadDeadline(time.Now().Add(partingTime)); err != nil {
		return err
	}
	_, _ = io.CopyN(io.Discard, w.Conn, partingBytes) // whatever stops it, the connection ends
	return nil
}
