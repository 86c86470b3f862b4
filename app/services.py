"""What the HTTP side stands on, built in one place from the settings, bottom up, and closed in reverse."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from app.api.state import no_upstreams
from app.artifacts import ArtifactLimits, ArtifactStore
from app.builtin_agents import builtin_agents
from app.domain.json_types import JsonObject
from app.domain.turn import Turn
from app.errors import SandboxUnavailable
from app.event_log import EventLogs
from app.keys import listed_models, revealed
from app.observability.metrics import Metrics
from app.runtime import local_model
from app.runtime.adoption import Adoption
from app.runtime.agent_loading import RegistryError, load
from app.runtime.agent_runner import TurnAgentRunner, installed
from app.runtime.compaction import CompactionRules, Compactor
from app.runtime.configured_models import ModelConfiguration, open_models
from app.runtime.containment import contained_task
from app.runtime.contexts import ContextFactory, ContextFactoryError
from app.runtime.credentials.databricks import DatabricksLogin
from app.runtime.credentials.environment import CommandLimits, CredentialsError, EnvironmentCredentials
from app.runtime.local_model import LocalModel
from app.runtime.mcp import McpLimits, MCPServers
from app.runtime.models.foreign import tapped
from app.runtime.models.transport import UpstreamLimits, is_loopback
from app.runtime.plans import Plans
from app.runtime.policy import (
    FunctionPolicy,
    Policy,
    PolicyLoadError,
    PolicyRules,
    RemotePolicy,
    TurnPolicy,
    no_policy,
)
from app.runtime.preparation import Preparation
from app.runtime.providers import EmbeddedModel, Providers
from app.runtime.registry import Registry
from app.runtime.runner import RunLimits, Runner
from app.runtime.service import AgentRuntime
from app.runtime.tool_threads import ToolThreads
from app.runtime.tools import observed, observed_mcp_call
from app.runtime.tracing import Tracing, TracingUnavailable, open_tracing
from app.sandbox import Sandboxes, open_sandboxes
from app.settings import Settings
from app.store import (
    DatabaseTooNew,
    DataFolder,
    FolderInUse,
    SqliteStore,
    UnsupportedDatabase,
    open_store,
)
from app.turns.execution import TurnLimits
from app.turns.manager import TurnManager
from app.turns.measures import TurnMeasures
from app.turns.retention import Retention
from app.turns.service import TurnService

FOLDER_WAIT_S = 10
"""Beyond the grace: how long a process that is stopping may still hold the data folder."""


class StartError(Exception):
    """The service cannot start here and now; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Services:
    """What the HTTP side stands on. `drain` ends what runs within the grace of the settings."""

    turns: TurnService
    metrics: Metrics
    drain: Callable[[], Awaitable[None]]
    upstreams: Callable[[], Awaitable[list[JsonObject]]] = no_upstreams


@asynccontextmanager
async def open_services(
    settings: Settings, *, log_lines_dropped: Callable[[], int] = lambda: 0
) -> AsyncIterator[Services]:
    """Build everything that turns need, and close it again in reverse. Raises StartError."""
    metrics = Metrics()
    threads = ToolThreads(settings.tool_threads)
    asyncio.get_running_loop().set_default_executor(threads)
    asyncio.get_running_loop().set_task_factory(contained_task)
    async with AsyncExitStack() as stack:
        store = await _opened_store(settings, stack)
        logs = EventLogs(store, window_bytes=settings.event_window_bytes)
        models = await _opened_models(settings, stack)
        artifacts = ArtifactStore(settings.data_dir / "artifacts", store, _artifact_limits(settings))
        stack.callback(artifacts.close)
        sandboxes = await _opened_sandboxes(settings, store, stack)
        runtime = await _opened_runtime(settings, models, artifacts, sandboxes, stack)
        manager = TurnManager(
            store,
            logs,
            runtime,
            _turn_limits(settings),
            default_cancel_mode=settings.cancel_mode,
            measures=TurnMeasures(metrics, models.price_of),
            retention=_retention(settings, store, artifacts),
            artifacts=artifacts,
        )
        metrics.watch("turns_running", lambda: manager.count("running"))
        metrics.watch("turns_queued", lambda: manager.count("queued"))
        metrics.watch("tasks", partial(_task_count, asyncio.get_running_loop()))
        metrics.watch("tool_threads_running", lambda: threads.running)
        metrics.watch("tool_threads_abandoned", lambda: threads.abandoned)
        metrics.watch("log_lines_dropped", log_lines_dropped)
        await stack.enter_async_context(manager.running())
        drain = partial(manager.drain, settings.shutdown_grace_s)
        yield Services(manager, metrics, drain, models.states)


def _task_count(loop: asyncio.AbstractEventLoop) -> int:
    return len(asyncio.all_tasks(loop))


async def _opened_store(settings: Settings, stack: AsyncExitStack) -> SqliteStore:
    folder = DataFolder(settings.data_dir, wait_s=settings.shutdown_grace_s + FOLDER_WAIT_S)
    try:
        await asyncio.to_thread(folder.acquire)
        stack.callback(folder.release)
        database = settings.database_url.get_secret_value() if settings.database_url else folder.database
        return await stack.enter_async_context(open_store(database, owner=secrets.token_hex(8)))
    except (FolderInUse, DatabaseTooNew, UnsupportedDatabase) as error:
        raise StartError(str(error)) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StartError(f"TURNWIRE_DATA_DIR={settings.data_dir}: {reason}") from error


async def _opened_runtime(
    settings: Settings,
    models: Providers,
    artifacts: ArtifactStore,
    sandboxes: Sandboxes,
    stack: AsyncExitStack,
) -> AgentRuntime:
    """The registered agents over the configured upstreams."""
    tracing = Tracing(settings.tracing, settings.trace_contents)
    servers = MCPServers(McpLimits(call_s=settings.tool_timeout_s), observed_mcp_call)
    adoption = Adoption(
        observe_tool=partial(observed, timeout_s=settings.tool_timeout_s),
        wrap_model=tapped,
        supervise=servers.supervised,
    )
    try:
        await stack.enter_async_context(_traced(settings, tracing))
        found = await load(settings.agents)
        builtin = await asyncio.to_thread(builtin_agents, sandboxes)
        registry = Registry(found, builtin, adoption, default_model=models.default_model)
        contexts = ContextFactory.load(settings.context)
        policies = _policies(settings, stack)
    except (RegistryError, ContextFactoryError, PolicyLoadError, TracingUnavailable) as error:
        raise StartError(str(error)) from error
    await asyncio.to_thread(models.warm_up)
    await servers.start()
    stack.push_async_callback(servers.aclose)
    agent_runner = TurnAgentRunner(models, registry.adopt, tracing=tracing)
    stack.enter_context(installed(agent_runner))
    preparation = Preparation(registry, models, sandboxes.check)
    plans = Plans(preparation, contexts, artifacts, sandboxes, tracing)
    limits = RunLimits(
        settings.max_steps, settings.history_items, settings.max_tool_output_bytes, settings.reasoning_ids
    )
    rules = CompactionRules(
        settings.compact_at,
        lambda name: models.context_window(name or models.default_model) or settings.context_window,
    )
    compactor = Compactor(rules, lambda job: preparation.first_model(job.turn.request, job.prepared.agent))
    runner = Runner(preparation, agent_runner, plans, limits, compactor, policies=policies, tracing=tracing)
    return AgentRuntime(registry, preparation, plans, runner)


def _traced(settings: Settings, tracing: Tracing) -> AbstractAsyncContextManager[None]:
    key = revealed(settings.openai_api_key)
    return open_tracing(tracing, url=settings.tracing_url, openai_url=settings.openai_base_url, openai_key=key)


def _policies(settings: Settings, stack: AsyncExitStack) -> Callable[[Turn], TurnPolicy | None]:
    """The operator's policy for each turn. Raises PolicyLoadError."""
    name = settings.policy
    if name is None:
        return no_policy
    if name.startswith(("http://", "https://")):
        remote = RemotePolicy(name, trust_env=not is_loopback(name))
        stack.push_async_callback(remote.aclose)
        policy: Policy = remote
    else:
        policy = FunctionPolicy.load(name)
    rules = PolicyRules(
        settings.policy_timeout_s, settings.policy_failed_model_calls, settings.policy_failed_tool_calls
    )
    return partial(TurnPolicy, policy, rules)


async def _opened_models(settings: Settings, stack: AsyncExitStack) -> Providers:
    local = LocalModel()
    stack.push_async_callback(local.stop)
    configuration = ModelConfiguration(
        credentials=_credentials(settings),
        listed=listed_models(settings),
        default_model=settings.model,
        api=settings.model_api,
        limits=_upstream_limits(settings),
        embedded=EmbeddedModel(local_model.MODEL_NAME, local.ensure),
    )
    try:
        return await open_models(configuration, stack)
    except CredentialsError as error:
        raise StartError(str(error)) from error


def _credentials(settings: Settings) -> EnvironmentCredentials:
    ambient = (settings.ambient_databricks_profile, settings.ambient_databricks_host)
    explicit = (settings.databricks_profile, settings.databricks_host)
    return EnvironmentCredentials(
        url=settings.upstream_url,
        api_key=revealed(settings.upstream_api_key),
        auth_command=revealed(settings.auth_command),
        databricks=DatabricksLogin(*explicit) if any(explicit) else None,
        openai_url=settings.openai_base_url,
        openai_key=revealed(settings.openai_api_key),
        ambient=DatabricksLogin(*ambient) if any(ambient) else None,
        command_limits=CommandLimits(settings.auth_command_timeout_s, settings.auth_command_keep_s),
    )


def _upstream_limits(settings: Settings) -> UpstreamLimits:
    return UpstreamLimits(
        connect_s=settings.upstream_connect_s,
        first_byte_s=settings.upstream_first_byte_s,
        idle_s=settings.upstream_idle_s,
        retries=settings.upstream_retries,
        max_frame_bytes=settings.max_frame_bytes,
        max_message_bytes=settings.max_message_bytes,
    )


def _artifact_limits(settings: Settings) -> ArtifactLimits:
    return ArtifactLimits(
        file_bytes=settings.max_artifact_bytes,
        turn_files=settings.max_artifacts,
        turn_bytes=settings.max_artifacts_bytes,
    )


async def _opened_sandboxes(settings: Settings, store: SqliteStore, stack: AsyncExitStack) -> Sandboxes:
    """Where agents' commands run; workspaces that a crash left go, those of paused and queued turns stay."""
    opened = open_sandboxes(settings.data_dir / "workspaces", settings.sandbox)
    try:
        sandboxes = await stack.enter_async_context(opened)
    except SandboxUnavailable as error:
        raise StartError(error.detail) from error
    waiting = {turn.id for turn in await store.paused_turns()}
    await sandboxes.sweep(waiting)
    return sandboxes


def _retention(settings: Settings, store: SqliteStore, artifacts: ArtifactStore) -> Retention:
    days = settings.conversation_retention_d
    return Retention(
        store,
        artifacts,
        events=timedelta(hours=settings.event_retention_h),
        conversations=timedelta(days=days) if days else None,
    )


def _turn_limits(settings: Settings) -> TurnLimits:
    return TurnLimits(
        max_turns=settings.max_turns,
        max_turns_per_caller=settings.max_turns_per_caller,
        queue_limit=settings.queue_limit,
        turn_timeout_s=settings.turn_timeout_s,
        cancel_wait_s=settings.cancel_wait_s,
        disconnect_grace_s=settings.disconnect_grace_s,
        pause_expiry_s=settings.pause_expiry_s,
        max_listeners=settings.max_listeners,
    )
