package carillon

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

// Every member of a tick reaches the handler's Tick, whatever its payload's type.
func TestTypedKeepsEveryMember(t *testing.T) {
	t.Parallel()
	var from Tick[json.RawMessage]
	v := reflect.ValueOf(&from).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Interface().(type) {
		case string:
			f.SetString(v.Type().Field(i).Name)
		case int, int64:
			f.SetInt(int64(i + 1))
		case *int64:
			f.Set(reflect.ValueOf(ptr(int64(i + 1))))
		case bool:
			f.SetBool(true)
		case time.Time:
			f.Set(reflect.ValueOf(time.Unix(int64(i), 0)))
		case *time.Time:
			f.Set(reflect.ValueOf(ptr(time.Unix(int64(i), 0))))
		case []time.Time:
			f.Set(reflect.ValueOf([]time.Time{time.Unix(int64(i), 0)}))
		case map[string]string:
			f.Set(reflect.ValueOf(map[string]string{"plan": "pro"}))
		case json.RawMessage:
			f.SetBytes([]byte(`{"n":1}`))
		default:
			t.Fatalf("%s is of a type that this test does not fill", v.Type().Field(i).Name)
		}
	}
	to, err := typed[map[string]int](from)
	if err != nil {
		t.Fatal(err)
	}
	got := reflect.ValueOf(to)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if name != "Payload" && !reflect.DeepEqual(got.FieldByName(name).Interface(), v.Field(i).Interface()) {
			t.Errorf("%s is lost", name)
		}
	}
	if to.Payload["n"] != 1 {
		t.Errorf("got payload %v", to.Payload)
	}
	raw, err := typed[json.RawMessage](Tick[json.RawMessage]{Payload: json.RawMessage(`{ "n" : 1e400 }`)})
	if err != nil || string(raw.Payload) != `{ "n" : 1e400 }` {
		t.Errorf("got %s, %v; want the payload's own bytes", raw.Payload, err)
	}
}
