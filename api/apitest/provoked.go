package apitest

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// ProvokedFile is the environment variable that names a file to which each error that a test provoked is added, a line
// each, so that tests of several programs can be held together to the document: see [Unprovoked].
const ProvokedFile = "CARILLON_PROVOKED"

// provoke notes that a documented error was seen. It is called with what the document allows.
func provoke(op *openapi3.Operation, ref *openapi3.ResponseRef, status int, code string) error {
	path := os.Getenv(ProvokedFile)
	if path == "" || code == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(documentedError(op, ref, fmt.Sprint(status), code) + "\n") // one write, which others' do not cut
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// documentedError names an error of the document: a response that operations share is one, wherever it was seen.
func documentedError(op *openapi3.Operation, ref *openapi3.ResponseRef, status, code string) string {
	where := op.OperationID
	if ref.Ref != "" {
		where = ref.Ref[strings.LastIndex(ref.Ref, "/")+1:]
	}
	return where + " " + status + " " + code
}

// Unprovoked are the errors of the document that are not among the seen lines, in order: each code of each response.
func Unprovoked(seen []string) ([]string, error) {
	c, err := load()
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, item := range c.doc.Paths.Map() {
		for _, op := range item.Operations() {
			for status, ref := range op.Responses.Map() {
				codes, _ := ref.Value.Extensions["x-codes"].([]any)
				for _, code := range codes {
					if one := documentedError(op, ref, status, fmt.Sprint(code)); !slices.Contains(seen, one) && !slices.Contains(missing, one) {
						missing = append(missing, one)
					}
				}
			}
		}
	}
	slices.Sort(missing)
	return missing, nil
}
