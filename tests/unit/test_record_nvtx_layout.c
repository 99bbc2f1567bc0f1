/*
 * White-box. Our picture of NVTX against the toolkit's headers, and a program that uses those
 * headers under the module itself. Both only where the headers are.
 */
#include "recorder/nvtx/nvtx.h"

#ifdef HAVE_NVTX_HEADERS
#include "record_run.h"

#include <nvtx3/nvToolsExt.h>

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours " is " #theirs)
SAME(NVTX_CORE, NVTX_CB_MODULE_CORE);
SAME(NVTX_CORE2, NVTX_CB_MODULE_CORE2);
SAME(NVTX_EXPORT_CALLBACKS, NVTX_ETID_CALLBACKS);
SAME(NVTX_EXPORT_VERSION, NVTX_ETID_VERSIONINFO);
SAME(CORE_MARK_EX, NVTX_CBID_CORE_MarkEx);
SAME(CORE_MARK_A, NVTX_CBID_CORE_MarkA);
SAME(CORE_MARK_W, NVTX_CBID_CORE_MarkW);
SAME(CORE_START_EX, NVTX_CBID_CORE_RangeStartEx);
SAME(CORE_START_A, NVTX_CBID_CORE_RangeStartA);
SAME(CORE_START_W, NVTX_CBID_CORE_RangeStartW);
SAME(CORE_END, NVTX_CBID_CORE_RangeEnd);
SAME(CORE_PUSH_EX, NVTX_CBID_CORE_RangePushEx);
SAME(CORE_PUSH_A, NVTX_CBID_CORE_RangePushA);
SAME(CORE_PUSH_W, NVTX_CBID_CORE_RangePushW);
SAME(CORE_POP, NVTX_CBID_CORE_RangePop);
SAME(CORE_CATEGORY_A, NVTX_CBID_CORE_NameCategoryA);
SAME(CORE_CATEGORY_W, NVTX_CBID_CORE_NameCategoryW);
SAME(CORE_THREAD_A, NVTX_CBID_CORE_NameOsThreadA);
SAME(CORE_THREAD_W, NVTX_CBID_CORE_NameOsThreadW);
SAME(CORE2_MARK_EX, NVTX_CBID_CORE2_DomainMarkEx);
SAME(CORE2_START_EX, NVTX_CBID_CORE2_DomainRangeStartEx);
SAME(CORE2_END, NVTX_CBID_CORE2_DomainRangeEnd);
SAME(CORE2_PUSH_EX, NVTX_CBID_CORE2_DomainRangePushEx);
SAME(CORE2_POP, NVTX_CBID_CORE2_DomainRangePop);
SAME(CORE2_RESOURCE, NVTX_CBID_CORE2_DomainResourceCreate);
SAME(CORE2_RESOURCE_DESTROY, NVTX_CBID_CORE2_DomainResourceDestroy);
SAME(CORE2_CATEGORY_A, NVTX_CBID_CORE2_DomainNameCategoryA);
SAME(CORE2_CATEGORY_W, NVTX_CBID_CORE2_DomainNameCategoryW);
SAME(CORE2_STRING_A, NVTX_CBID_CORE2_DomainRegisterStringA);
SAME(CORE2_STRING_W, NVTX_CBID_CORE2_DomainRegisterStringW);
SAME(CORE2_DOMAIN_A, NVTX_CBID_CORE2_DomainCreateA);
SAME(CORE2_DOMAIN_W, NVTX_CBID_CORE2_DomainCreateW);
SAME(CORE2_DOMAIN_DESTROY, NVTX_CBID_CORE2_DomainDestroy);
SAME(CORE2_INITIALIZE, NVTX_CBID_CORE2_Initialize);
SAME(NVTX_TEXT_ASCII, NVTX_MESSAGE_TYPE_ASCII);
SAME(NVTX_TEXT_WIDE, NVTX_MESSAGE_TYPE_UNICODE);
SAME(NVTX_TEXT_REGISTERED, NVTX_MESSAGE_TYPE_REGISTERED);
SAME(NVTX_COLOR_IS_ARGB, NVTX_COLOR_ARGB);
SAME(NVTX_PAYLOAD_LAST, NVTX_PAYLOAD_TYPE_FLOAT);
SAME(NVTX_PAYLOAD_FIRST_32_BITS, NVTX_PAYLOAD_TYPE_UNSIGNED_INT32);
SAME(NVTX_THREAD_NATIVE, NVTX_RESOURCE_TYPE_GENERIC_THREAD_NATIVE);
SAME(NVTX_THREAD_POSIX, NVTX_RESOURCE_TYPE_GENERIC_THREAD_POSIX);

#define SAME_PLACE(ours, field, theirs, their_field)                                               \
    SAME(offsetof(struct ours, field), offsetof(theirs, their_field));                             \
    SAME(sizeof((struct ours *)0)->field, sizeof((theirs *)0)->their_field)
SAME(sizeof(struct nvtx_attributes), sizeof(nvtxEventAttributes_t));
SAME_PLACE(nvtx_attributes, version, nvtxEventAttributes_t, version);
SAME_PLACE(nvtx_attributes, bytes, nvtxEventAttributes_t, size);
SAME_PLACE(nvtx_attributes, category, nvtxEventAttributes_t, category);
SAME_PLACE(nvtx_attributes, color_type, nvtxEventAttributes_t, colorType);
SAME_PLACE(nvtx_attributes, color, nvtxEventAttributes_t, color);
SAME_PLACE(nvtx_attributes, payload_type, nvtxEventAttributes_t, payloadType);
SAME_PLACE(nvtx_attributes, payload, nvtxEventAttributes_t, payload);
SAME_PLACE(nvtx_attributes, text_type, nvtxEventAttributes_t, messageType);
SAME_PLACE(nvtx_attributes, text, nvtxEventAttributes_t, message);
SAME(sizeof(struct nvtx_resource), sizeof(nvtxResourceAttributes_t));
SAME_PLACE(nvtx_resource, bytes, nvtxResourceAttributes_t, size);
SAME_PLACE(nvtx_resource, type, nvtxResourceAttributes_t, identifierType);
SAME_PLACE(nvtx_resource, identifier, nvtxResourceAttributes_t, identifier);
SAME_PLACE(nvtx_resource, text_type, nvtxResourceAttributes_t, messageType);
SAME_PLACE(nvtx_resource, text, nvtxResourceAttributes_t, message);
SAME(sizeof(struct nvtx_callbacks), sizeof(NvtxExportTableCallbacks));
SAME_PLACE(nvtx_callbacks, get, NvtxExportTableCallbacks, GetModuleFunctionTable);
SAME(sizeof(struct nvtx_version), sizeof(NvtxExportTableVersionInfo));
SAME_PLACE(nvtx_version, set, NvtxExportTableVersionInfo, SetInjectionNvtxVersion);

static int run_program(void)
{
    nvtxDomainHandle_t domain = nvtxDomainCreateA("a domain");
    nvtxStringHandle_t string = nvtxDomainRegisterStringA(domain, "a registered text");
    nvtxEventAttributes_t a = {.version = NVTX_VERSION,
                               .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                               .category = 3,
                               .colorType = NVTX_COLOR_ARGB,
                               .color = 0xff112233,
                               .payloadType = NVTX_PAYLOAD_TYPE_INT32,
                               .payload.iValue = -5,
                               .messageType = NVTX_MESSAGE_TYPE_REGISTERED,
                               .message.registered = string};
    nvtxDomainNameCategoryA(domain, 3, "a category");
    nvtxRangePushA("outer");
    if (nvtxDomainRangePushEx(domain, &a) != 0 || nvtxDomainRangePop(domain) != 0)
        return 1;
    nvtxRangeId_t id = nvtxRangeStartW(L"started");
    nvtxMarkA("a mark");
    nvtxRangeEnd(id);
    nvtxRangePop();
    nvtxNameOsThreadA((uint32_t)gettid(), "a thread");
    nvtxDomainDestroy(domain);
    return 0;
}

static const struct record_mode modes[] = {{"program", run_program}};

static void test_program_with_the_headers(void **state)
{
    (void)state;
    char variable[4200];
    struct mr_part_range range;
    const char *module = getenv("MILLRACE_RECORD_MODULE");
    if (!module || !module[0]) {
        print_message("SKIP: MILLRACE_RECORD_MODULE does not name the recorder's module\n");
        skip();
    }
    snprintf(variable, sizeof variable, "NVTX_INJECTION64_PATH=%.4000s", module);
    assert_int_equal(record_run("MODE=program", "MILLRACE_RECORD_TRACE=4",
                                (const char *const[]){variable, NULL}),
                     0);
    assert_int_equal(n_looks, 1);
    assert_int_equal(looks[0].n[MR_PART_RANGE], 4);
    assert_int_equal(ranges_named(&looks[0], "outer", &range), 1);
    assert_int_equal(ranges_named(&looks[0], "started", &range), 1);
    assert_int_equal(range.type, MR_RANGE_START_END);
    assert_int_equal(ranges_named(&looks[0], "a mark", &range), 1);
    assert_int_equal(ranges_named(&looks[0], "a registered text", &range), 1);
    assert_string_equal(text_of(&looks[0], range.domain), "a domain");
    assert_string_equal(text_of(&looks[0], range.category_name), "a category");
    assert_int_equal(range.payload_type, NVTX_PAYLOAD_TYPE_INT32);
    assert_int_equal((int32_t)range.payload, -5);
    assert_int_equal(range.color, 0xff112233);
    assert_string_equal(thread_name(&looks[0], looks[0].header.pid), "a thread");
}

int main(void)
{
    int code = record_main(modes, sizeof modes / sizeof modes[0]);
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(
        test_program_with_the_headers, record_setup, record_teardown)};
    return code >= 0 ? code : cmocka_run_group_tests(tests, NULL, NULL);
}
#else
#include <stdio.h>

int main(void)
{
    puts("SKIP: no NVTX headers to compare with (nvtx3/nvToolsExt.h, of the CUDA toolkit)");
    return 77;
}
#endif
