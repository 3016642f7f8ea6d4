package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"

	"go.yaml.in/yaml/v3"
)

// writeYAML prints a JSON value as YAML, with its members in the same order and its numbers unchanged.
func writeYAML(w io.Writer, text json.RawMessage) error {
	node, err := yamlNode(text)
	if err != nil {
		return err
	}
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := encoder.Encode(node); err != nil {
		return err
	}
	return encoder.Close()
}

// yamlList prints the items of a list as one YAML sequence.
func (p *Printer) yamlList(w io.Writer, items iter.Seq2[json.RawMessage, error]) error {
	empty := true
	err := each(items, func(item json.RawMessage) error {
		empty = false
		if p.JQ != "" {
			return query(w, p.JQ, item)
		}
		return writeYAML(w, bytes.Join([][]byte{[]byte("["), item, []byte("]")}, nil))
	})
	if err == nil && empty && p.JQ == "" {
		_, err = io.WriteString(w, "[]\n")
	}
	return err
}

// yamlNode decodes JSON to a YAML node.
func yamlNode(text []byte) (*yaml.Node, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return nextNode(decoder)
}

func nextNode(decoder *json.Decoder) (*yaml.Node, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		return collection(decoder, t)
	case string:
		node := &yaml.Node{}
		if node.SetString(t); isNumber(t) {
			node.Style = yaml.DoubleQuotedStyle
		}
		return node, nil
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: t.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(t)}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
}

func collection(decoder *json.Decoder, open json.Delim) (*yaml.Node, error) {
	node := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	if open == '[' {
		node = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	}
	for decoder.More() {
		child, err := nextNode(decoder) // the name of a member is a token of its own
		if err != nil {
			return nil, err
		}
		node.Content = append(node.Content, child)
	}
	if len(node.Content) == 0 {
		node.Style = yaml.FlowStyle
	}
	_, err := decoder.Token() // the closing delimiter
	return node, err
}

// FromYAML returns a YAML document as JSON. JSON is YAML, so it also accepts JSON; numbers keep their digits.
func FromYAML(text []byte) (json.RawMessage, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	if len(document.Content) == 0 {
		return nil, fmt.Errorf("the document is empty")
	}
	var out bytes.Buffer
	if err := writeNode(&out, document.Content[0]); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func writeNode(out *bytes.Buffer, node *yaml.Node) error {
	switch node.Kind {
	case yaml.AliasNode:
		return writeNode(out, node.Alias)
	case yaml.MappingNode:
		return writeMembers(out, node)
	case yaml.SequenceNode:
		out.WriteByte('[')
		for i, child := range node.Content {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := writeNode(out, child); err != nil {
				return err
			}
		}
		out.WriteByte(']')
		return nil
	}
	if node.Style == 0 && isNumber(node.Value) { // whatever its size: the YAML library takes 1e400 for a text
		out.WriteString(node.Value)
		return nil
	}
	switch number := json.Number(node.Value); node.ShortTag() {
	case "!!null":
		out.WriteString("null")
	case "!!bool":
		var b bool
		if err := node.Decode(&b); err != nil {
			return err
		}
		fmt.Fprint(out, b)
	case "!!int", "!!float":
		if !json.Valid([]byte(number)) {
			return fmt.Errorf("line %d: %s is not a number of JSON", node.Line, node.Value)
		}
		out.WriteString(node.Value)
	default: // dates too stay texts
		out.WriteString(compact(node.Value))
	}
	return nil
}

// isNumber reports whether a text is a number of JSON.
func isNumber(text string) bool {
	return text != "" && (text[0] == '-' || text[0] >= '0' && text[0] <= '9') && json.Valid([]byte(text))
}

func writeMembers(out *bytes.Buffer, node *yaml.Node) error {
	out.WriteByte('{')
	for i := 0; i+1 < len(node.Content); i += 2 {
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteString(compact(node.Content[i].Value) + ":")
		if err := writeNode(out, node.Content[i+1]); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	return nil
}

// YAML returns a JSON value as YAML, as -o yaml prints it.
func YAML(text json.RawMessage) ([]byte, error) {
	var out bytes.Buffer
	err := writeYAML(&out, text)
	return out.Bytes(), err
}
