package lambda

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
)

const accountID = "123456789012"

// RuntimeVariables returns the variables of the Go runtime that template.yaml sets for a function, by its name.
func RuntimeVariables(name string) map[string]string {
	switch name {
	case "control":
		return map[string]string{"GOGC": "off"}
	case "proxy", "fleet":
		return map[string]string{"GOMAXPROCS": "1"}
	}
	return nil
}

// environment returns Lambda's variables and cfg.Env, and nothing of this process.
// https://docs.aws.amazon.com/lambda/latest/dg/configuration-envvars.html
func environment(cfg Config) ([]string, error) {
	reserved := map[string]string{
		"_HANDLER":                        "bootstrap",
		"AWS_DEFAULT_REGION":              cfg.Region,
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": strconv.Itoa(cfg.MemoryMB),
		"AWS_LAMBDA_FUNCTION_NAME":        cfg.Name,
		"AWS_LAMBDA_FUNCTION_VERSION":     "$LATEST",
		"AWS_LAMBDA_INITIALIZATION_TYPE":  "on-demand",
		"AWS_LAMBDA_LOG_GROUP_NAME":       "/aws/lambda/" + cfg.Name,
		"AWS_LAMBDA_LOG_STREAM_NAME":      "local",
		"AWS_REGION":                      cfg.Region,
		"LAMBDA_RUNTIME_DIR":              "/var/runtime",
		"LAMBDA_TASK_ROOT":                filepath.Dir(cfg.Bootstrap),
	}
	env := map[string]string{
		"LANG": "en_US.UTF-8",
		"PATH": "/usr/local/bin:/usr/bin:/bin:/opt/bin",
		"TZ":   ":UTC",
	}
	for k, v := range cfg.Env {
		if _, is := reserved[k]; is || k == "AWS_LAMBDA_RUNTIME_API" {
			return nil, fmt.Errorf("variable %s is reserved by Lambda", k)
		}
		env[k] = v
	}
	maps.Copy(env, reserved)
	var out []string
	for _, k := range slices.Sorted(maps.Keys(env)) {
		out = append(out, k+"="+env[k])
	}
	return slices.Clip(out), nil
}
