"""The keys and other secrets that the settings lead to: who may call, and what no log line may show."""

import os

from pydantic import SecretStr

from app.api.auth import ApiKeys, pairs
from app.runtime.model_list import ListedModel, ModelListError, parse
from app.settings import Settings, SettingsError


def load_keys(settings: Settings) -> ApiKeys | None:
    """The API keys of the settings and of their file, None if there are none. Raises SettingsError."""
    texts = key_texts(settings)
    for variable, text in texts.items():
        try:
            ApiKeys.parse(text)
        except ValueError as error:
            raise SettingsError(f"{variable}: {error}") from None
    return ApiKeys.parse("\n".join(texts.values())) if texts else None


def key_texts(settings: Settings) -> dict[str, str]:
    """What the variables of the API keys say, by their names. Secret. Raises SettingsError."""
    texts = {}
    if settings.api_keys is not None:
        texts["TURNWIRE_API_KEYS"] = settings.api_keys.get_secret_value()
    if settings.api_keys_file is not None:
        try:
            texts["TURNWIRE_API_KEYS_FILE"] = settings.api_keys_file.read_text("utf-8")
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8"
            raise SettingsError(f"TURNWIRE_API_KEYS_FILE: cannot be read: {reason}") from None
    return texts


def secrets(settings: Settings) -> list[str]:
    """What no log line may show. Raises SettingsError."""
    given = [settings.openai_api_key, settings.upstream_api_key, settings.database_url]
    given += [model.api_key for model in listed_models(settings).values()]
    keys = [key for text in key_texts(settings).values() for _, key in pairs(text)]
    return [*keys, *(secret.get_secret_value() for secret in given if secret is not None)]


def listed_models(settings: Settings) -> dict[str, ListedModel]:
    """The models of `TURNWIRE_MODELS`. Raises SettingsError."""
    try:
        return parse(settings.models.get_secret_value(), os.environ) if settings.models else {}
    except ModelListError as error:
        raise SettingsError(str(error)) from None


def revealed(value: SecretStr | None) -> str | None:
    return value.get_secret_value() if value is not None else None
