package servertest

import (
	"context"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/carillonhq/carillon/api/apitest"
	carillon "github.com/carillonhq/carillon/sdk-go"
)

// operationsWithoutMethod are the operations that no method of the client requests, with the reason.
var operationsWithoutMethod = map[string]string{
	"finishTicks":    "a worker reports its outcomes by it; Ticks.Complete and Ticks.Fail report one",
	"heartbeatTicks": "a worker extends its leases by it; Ticks.Heartbeat extends one",
	"checkHealth":    "for probes of the process",
	"checkReadiness": "for probes of the process",
	"getMetrics":     "for Prometheus",
	"getOpenAPI":     "a file for tools",
	"getDocs":        "a page for people",
	"getDocsFile":    "a file of that page",
	"getConsole":     "a page for people",
	"pushTick":       "the server requests it; a Webhook answers it",
	"pushEvent":      "the server requests it; a Webhook answers it",
}

// methodsWithoutOperation are the methods of the client that make no request.
var methodsWithoutOperation = []string{"Client.Close"}

// TestEachOperationHasAMethod calls every method of the client, and finds the operation of each request in the document.
func TestEachOperationHasAMethod(t *testing.T) {
	t.Parallel()
	contract := apitest.New(t)
	called := map[string]bool{}
	for name, call := range methods(t) {
		for _, r := range call() {
			id := contract.Operation(r.Method, r.URL.EscapedPath())
			if id == "" {
				t.Errorf("%s requests %s %s, which openapi.yaml does not have", name, r.Method, r.URL.Path)
			}
			called[id] = true
			name = ""
		}
		if name != "" && !slices.Contains(methodsWithoutOperation, name) {
			t.Errorf("%s makes no request", name)
		}
	}
	for _, id := range contract.Operations() {
		_, excepted := operationsWithoutMethod[id]
		if called[id] == excepted {
			t.Errorf("operation %s has a method: %t, and is an exception: %t", id, called[id], excepted)
		}
		delete(operationsWithoutMethod, id)
	}
	for id := range operationsWithoutMethod {
		t.Errorf("the exception %s is not in openapi.yaml", id)
	}
}

// methods are the methods of a client and of its fields by name. Each call returns the requests that it makes.
func methods(t *testing.T) map[string]func() []*http.Request {
	seen := &recorder{}
	c, err := carillon.New(carillon.Config{URL: "http://carillon.test", Token: "t", HTTPClient: &http.Client{Transport: seen}, Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]func() []*http.Request{}
	add := func(of string, receiver reflect.Value) {
		for i := range receiver.NumMethod() {
			all[of+"."+receiver.Type().Method(i).Name] = func() []*http.Request {
				seen.requests = nil
				results := receiver.Method(i).Call(arguments(t.Context(), receiver.Method(i).Type()))
				if len(results) == 1 && results[0].Kind() == reflect.Func { // a list makes its request when the loop begins
					results[0].Call([]reflect.Value{stop(results[0].Type().In(0))})
				}
				return seen.requests
			}
		}
	}
	add("Client", reflect.ValueOf(c))
	fields := reflect.ValueOf(c).Elem()
	for i := range fields.NumField() {
		if fields.Type().Field(i).IsExported() {
			add(fields.Type().Field(i).Name, fields.Field(i))
		}
	}
	return all
}

// arguments are arguments for a method: "x" for a text, no lines for an iterator, and zero values.
func arguments(ctx context.Context, method reflect.Type) []reflect.Value {
	var in []reflect.Value
	for i := range method.NumIn() {
		typ := method.In(i)
		switch {
		case typ == reflect.TypeFor[context.Context]():
			in = append(in, reflect.ValueOf(ctx))
		case method.IsVariadic() && i == method.NumIn()-1:
		case typ.Kind() == reflect.String:
			in = append(in, reflect.ValueOf("x").Convert(typ))
		case typ.Kind() == reflect.Func && strings.HasPrefix(typ.Name(), "Seq"):
			in = append(in, reflect.MakeFunc(typ, func([]reflect.Value) []reflect.Value { return nil }))
		default:
			in = append(in, reflect.Zero(typ))
		}
	}
	return in
}

// stop returns a loop's body that ends the loop.
func stop(yield reflect.Type) reflect.Value {
	return reflect.MakeFunc(yield, func([]reflect.Value) []reflect.Value { return []reflect.Value{reflect.ValueOf(false)} })
}

// recorder keeps requests and refuses them.
type recorder struct {
	mu       sync.Mutex
	requests []*http.Request
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, req)
	return &http.Response{StatusCode: http.StatusBadRequest, Body: io.NopCloser(strings.NewReader("{}")), Header: http.Header{}, Request: req}, nil
}
