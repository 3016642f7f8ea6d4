package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
)

// clocks are the errors of each process's clock in seconds. A j at the end means that the clock changes every seven seconds
// between the wrong and the right time. The program must be built with wrongClocks. No due time may depend on these clocks.
var clocks = map[string]string{"api-1": "3", "api-2": "-4j", "sweep-1": "3j", "sweep-2": "-3", "dispatch-1": "4", "dispatch-2": "-2j"}

const (
	nowReads = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	nowWrong = nowReads + "\tif !wrongJumps || mono/7e9%2 == 0 {\n\t\tsec += wrongSeconds\n\t}\n"
	wrongBy  = `
var wrongSeconds, wrongJumps = func() (s int64, jumps bool) {
	text, _ := syscall.Getenv("CARILLON_CLOCK")
	sign := int64(1)
	for _, c := range text {
		switch {
		case c == '-':
			sign = -1
		case c == 'j':
			jumps = true
		case c >= '0' && c <= '9':
			s = 10*s + int64(c-'0')
		}
	}
	return sign * s, jumps
}()
`
)

var errOtherClock = errors.New("this version of Go reads the clock in a way that the lab does not know")

// wrongClocks writes an overlay of the standard library in which the wall clock is off by CARILLON_CLOCK, and returns the file for -overlay.
// The monotonic clock is right, as on a machine whose clock is set.
func wrongClocks(dir string) (string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	original := filepath.Join(string(bytes.TrimSpace(root)), "src", "time", "time.go")
	text, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	if bytes.Count(text, []byte(nowReads)) != 1 {
		return "", errOtherClock
	}
	text = bytes.Replace(text, []byte(nowReads), []byte(nowWrong), 1)
	text = bytes.Replace(text, []byte("import (\n"), []byte("import (\n\t\"syscall\"\n"), 1)
	patched, overlay := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(patched, append(text, wrongBy...), 0o600); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {original: patched}})
	if err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, list, 0o600)
}
