package apitest

import (
	"regexp"
	"slices"
	"strings"
)

// Operation returns the operationId of a request to a path as it is sent, or nothing if the document has no such operation.
func (c *Contract) Operation(method, path string) string {
	route, _ := c.find(method, path)
	if route == nil {
		return ""
	}
	return route.Operation.OperationID
}

// Operations returns the operationIds of the document, in order.
func (c *Contract) Operations() []string {
	var ids []string
	for _, item := range c.doc.Paths.Map() {
		for _, operation := range item.Operations() {
			ids = append(ids, operation.OperationID)
		}
	}
	for _, hook := range c.doc.Webhooks {
		for _, operation := range hook.Operations() {
			ids = append(ids, operation.OperationID)
		}
	}
	slices.Sort(ids)
	return ids
}

// Objects returns the names of the schemas that describe an object by its members, in order.
func (c *Contract) Objects() []string {
	var names []string
	for name, schema := range c.doc.Components.Schemas {
		if len(schema.Value.Properties) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

var quotedName = regexp.MustCompile("`([a-z0-9_.]+)`")

// EventMembers returns the members of the data of an event, in order, as the description of EventData lists them; nil: it does not list
// the event.
func (c *Contract) EventMembers(event string) []string {
	for line := range strings.Lines(c.doc.Components.Schemas["EventData"].Value.Description) {
		events, members, listed := strings.Cut(line, ":")
		if !listed || !strings.Contains(events, "`"+event+"`") {
			continue
		}
		var names []string
		for _, name := range quotedName.FindAllStringSubmatch(members, -1) {
			names = append(names, name[1])
		}
		slices.Sort(names)
		return names
	}
	return nil
}
