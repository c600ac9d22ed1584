package canary

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/BurntSushi/toml"
)

// pair is a parameter in parameter_overrides, as SAM reads it.
var pair = regexp.MustCompile(` ([A-Za-z0-9]+)=("(?:\\.|[^"\\]+)*"|'(?:\\.|[^'\\]+)*'|(?:\\.|[^ "\\]+)+)`)

// Parameters returns the parameters of the default environment in a samconfig.toml.
func Parameters(samconfig []byte) (map[string]string, error) {
	var config struct {
		Default struct {
			Deploy, Global struct {
				Parameters struct {
					Overrides any `toml:"parameter_overrides"`
				}
			}
		}
	}
	if err := toml.Unmarshal(samconfig, &config); err != nil {
		return nil, fmt.Errorf("samconfig.toml: %w", err)
	}
	overrides := config.Default.Deploy.Parameters.Overrides
	if overrides == nil {
		overrides = config.Default.Global.Parameters.Overrides
	}
	parameters := map[string]string{}
	add := func(text string) {
		for _, found := range pair.FindAllStringSubmatch(" "+strings.TrimSpace(text), -1) {
			parameters[found[1]] = unquote(found[2])
		}
	}
	switch overrides := overrides.(type) {
	case string:
		add(overrides)
	case []any:
		for _, item := range overrides {
			add(fmt.Sprint(item))
		}
	case map[string]any:
		for name, value := range overrides {
			parameters[name] = fmt.Sprint(value)
		}
	default:
		return nil, errors.New("samconfig.toml has no parameter_overrides in [default.deploy.parameters]; " +
			"run make deploy without CANARY and save the answers")
	}
	return parameters, nil
}

func unquote(value string) string {
	if len(value) > 1 && (value[0] == '"' || value[0] == '\'') && value[len(value)-1] == value[0] {
		value = value[1 : len(value)-1]
	}
	return strings.NewReplacer(`\ `, " ", `\"`, `"`, `\'`, "'").Replace(value)
}
